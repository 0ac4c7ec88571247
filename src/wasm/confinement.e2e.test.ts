import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { test } from 'node:test'
import { encodeArtifact } from '#wasm/artifact.ts'
import { prepared, preview1, run, withRunner } from '#wasm/fixtures/run-wat.ts'
import { UP } from '#wasm/child/frames.ts'
import { RestrictedChild, STACK_BYTES } from '#wasm/child/restricted-child.ts'

const LIMITS = { dataBytes: 2 ** 31, stackBytes: STACK_BYTES, filesMax: 64, tasksMax: 64 }

test('FN-4 hostile JavaScript with all of Node at hand reaches no file, process, network or environment', async () => {
  let report = ''
  const child = new RestrictedChild({
    node: process.execPath,
    entry: '#wasm/fixtures/escape-probe.ts',
    heapMb: 128,
    limits: LIMITS,
    frameBytesMax: 1024 * 1024,
    onFrame: ({ kind, payload }) => {
      if (kind === UP.loaded) report = payload.toString()
    },
  })
  const end = await child.ended
  assert.equal(end.code, 0, end.stderr)
  const { error } = JSON.parse(report) as { error: string }
  const found = JSON.parse(error) as Record<string, string>
  const { environment, kill, ...attempts } = found
  assert.equal(environment, '')
  // Signal 0 to its parent: processes of one uid see each other until the child has a uid of its own.
  assert.ok(kill)
  for (const [what, result] of Object.entries(attempts))
    assert.doesNotMatch(result, /^ALLOWED/, what)
  assert.ok(!existsSync('/tmp/clutch-escape-probe'))
})

test('FN-4 glue sees the language and WebAssembly, and nothing of Node', async () => {
  const glue = `(function () {
    const probe = async () => {
      const found = {}
      for (const name of ['process', 'require', 'Buffer', 'fetch', 'global', 'module', 'setTimeout', 'navigator', 'crypto', 'localStorage'])
        found[name] = typeof globalThis[name]
      const attempt = (name, act) => { try { act(); found[name] = 'ALLOWED' } catch (e) { found[name] = e.name } }
      attempt('Function', () => Function('return 1')())
      attempt('eval', () => (0, eval)('1'))
      attempt('async', () => (async () => {}).constructor('return 1'))
      attempt('host', () => imports['wasi:cli/environment'].getEnvironment.constructor('return process')())
      return found
    }
    let imports
    return function instantiate(getModule, given) {
      imports = given
      return { 'wasi:cli/run@0.2.0': { run() {
        const bytes = (text) => new TextEncoder().encode(text)
        let names = ''
        for (let o = globalThis; o; o = Object.getPrototypeOf(o)) names += Object.getOwnPropertyNames(o).filter((name) => globalThis[name] !== undefined).join(' ') + ' '
        const found = { names }
        const attempt = (name, act) => { try { act(); found[name] = 'ALLOWED' } catch (e) { found[name] = e.name } }
        attempt('Function', () => Function('return 1')())
        attempt('eval', () => (0, eval)('1'))
        attempt('host', () => given['wasi:cli/environment'].getEnvironment.constructor('return process')())
        found.process = typeof process
        given['wasi:cli/stdout'].getStdout().write(bytes(JSON.stringify(found)))
      } } }
    }
  })()`
  const artifact = encodeArtifact({
    kind: 'component',
    imports: ['wasi:cli/environment@0.2.0', 'wasi:cli/stdout@0.2.0'],
    glue,
    modules: [],
  })
  const { outcome, stdout } = await withRunner(artifact, (runner) => run(runner))
  assert.equal(outcome.kind, 'exited', JSON.stringify(outcome))
  const { names, ...found } = JSON.parse(stdout.toString()) as Record<string, string>
  assert.deepEqual(found, {
    Function: 'EvalError',
    eval: 'ReferenceError',
    host: 'EvalError',
    process: 'undefined',
  })
  assert.doesNotMatch(
    names ?? '',
    /\b(process|Buffer|fetch|require|setTimeout|WebSocket|Worker|navigator|gc)\b/,
  )
})

test('FN-4 a child holds three descriptors, no environment, no capabilities, and its limits', async () => {
  const spin = preview1([], '(call $print (i32.const 0) (i32.const 1)) (loop $l (br $l))')
  await withRunner(await prepared(spin), async (runner) => {
    const { pid } = runner
    const stop = new AbortController()
    const seen: Record<string, string> = {}
    await run(runner, {
      signal: stop.signal,
      onStdout: () => {
        for (const file of ['environ', 'status', 'limits', 'cmdline'])
          seen[file] = readFileSync(`/proc/${pid}/${file}`, 'utf8')
        seen['fds'] = readdirSync(`/proc/${pid}/fd`)
          .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
          .filter((target) => !/^(anon_inode|pipe):/.test(target) && target !== '/dev/null')
          .map((target) => target.replace(/\d+/, 'n'))
          .join(' ')
        stop.abort(new Error('seen'))
      },
    })
    assert.equal(seen['environ'], '')
    // Node's own event descriptors and its pipes to itself aside, there are the three that lead to the parent.
    assert.equal(seen['fds'], 'socket:[n] socket:[n] socket:[n]')
    assert.match(seen['status'] ?? '', /NoNewPrivs:\s+1/)
    assert.match(seen['status'] ?? '', /CapEff:\s+0+\n/)
    assert.match(seen['limits'] ?? '', /Max core file size\s+0\s+0/)
    assert.match(seen['limits'] ?? '', /Max file size\s+0\s+0/)
    assert.match(seen['limits'] ?? '', /Max open files\s+32\s+32/)
    assert.match(seen['cmdline'] ?? '', /--permission\0/)
    assert.doesNotMatch(seen['cmdline'] ?? '', /--allow-/)
  })
})

test('FN-4 a child that breaks the protocol is killed and told as a fault', async () => {
  const glue = `(function () { return function instantiate(getModule, given) {
    return { 'wasi:cli/run@0.2.0': { run() {
      // A hostile glue that got rid of the bound on its output.
      Uint8Array.prototype.subarray = function () { return new Uint8Array(1000000) }
      const out = given['wasi:cli/stdout'].getStdout()
      for (;;) out.write(new Uint8Array(1))
    } } }
  } })()`
  const artifact = encodeArtifact({
    kind: 'component',
    imports: ['wasi:cli/stdout@0.2.0'],
    glue,
    modules: [],
  })
  const { outcome, stdout } = await withRunner(artifact, (runner) =>
    run(runner, { timeoutMs: 10_000 }),
  )
  assert.match(outcome.kind, /^(fault|trap|timeout)$/)
  assert.ok(stdout.length <= 1024 * 1024)
})

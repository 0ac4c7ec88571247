// `POST /fn/<org>/<name>` through real processes, with guests that stream.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { after, test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { until } from '#lib/until.ts'
import { exchange, type Exchange } from '#test/http-exchange.ts'
import { startPlatform } from '#test/platform.ts'

const KIB = 1024
const MIB = 1024 * KIB

/** A module of preview 1 with 64 KiB at 1024, and what it does. */
const program = (body: string, locals = ''): string => `(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "\\00\\04\\00\\00\\00\\00\\01\\00")
  (func (export "_start") ${locals} ${body}))`

/** Writes what it reads, as it comes. */
const ECHO = program(`
  (loop $more
    (i32.store (i32.const 4) (i32.const 65536))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (if (i32.load (i32.const 8)) (then
      (i32.store (i32.const 4) (i32.load (i32.const 8)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br $more))))`)

/** Writes `times` pieces of `bytes`, then does `end`. */
const says = (bytes: number, times: number, end: string): string =>
  program(
    `(i32.store (i32.const 4) (i32.const ${bytes}))
     (local.set $left (i32.const ${times}))
     (loop $more
       (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
       (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
     ${end}`,
    '(local $left i32)',
  )

const platform = await startPlatform({ after })
const agent = await platform.startNode('node-fn')
const deploy = async (name: string, wat: string, over: object = {}): Promise<void> => {
  await platform.deploy(name, await parse(wat), { cpuMillis: 500, ...over })
}
await deploy('echo', ECHO, { timeoutMs: 120_000 })

const post = (name: string, headers: Record<string, string> = {}): Exchange =>
  exchange(`${platform.url}/fn/platform/${name}`, {
    headers: { 'x-api-key': platform.key, ...headers },
  })

const residentMib = (pid: number): number => {
  const [, kib] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / KIB
}

test('FN-9 stdin and stdout stream at once: each piece is sent when the one before came back', async () => {
  const { req, head, read, rest, trailers } = post('echo')
  const first = Buffer.alloc(64 * KIB, 'first ')
  req.write(first)
  assert.equal((await head()).statusCode, 200)
  assert.ok((await read(first.length)).equals(first))
  for (const text of ['a line\n', 'another\n', 'x']) {
    req.write(text)
    assert.equal((await read(text.length)).toString(), text)
  }
  req.end('the end\n')
  assert.equal((await rest()).toString(), 'the end\n')
  const ended = await trailers()
  assert.equal(ended['x-clutch-exit-code'], '0')
  assert.match(String(ended['x-clutch-duration-ms']), /^\d+$/)
})

test('FN-9 a small call: the status waits for the end', async () => {
  const { req, head, rest } = post('echo')
  req.end('hello\n')
  const { statusCode, headers } = await head()
  assert.equal(statusCode, 200)
  assert.equal((await rest()).toString(), 'hello\n')
  assert.equal(headers['x-clutch-exit-code'], '0')
  assert.equal(headers['content-length'], '6')
})

test('FN-9 ends below 64 KiB have their status; beyond it a failure breaks the body off', async () => {
  const cases: [name: string, wat: string, status: number, reason: string | undefined][] = [
    ['exits', says(100, 10, '(call $exit (i32.const 7))'), 502, 'exit'],
    ['traps', says(100, 10, 'unreachable'), 502, 'trap'],
    ['spins', says(100, 10, '(loop $for_ever (br $for_ever))'), 504, 'timeout'],
    ['burns', says(100, 10, '(loop $for_ever (br $for_ever))'), 502, 'fuel'],
  ]
  for (const [name, wat, status, reason] of cases) {
    await deploy(name, wat, name === 'burns' ? { fuelMax: 5_000_000 } : { timeoutMs: 1_000 })
    const { req, head, rest } = post(name)
    req.end()
    const { statusCode, headers } = await head()
    assert.equal(statusCode, status, `${name}: ${String(headers['x-clutch-error'])}`)
    assert.equal(headers['x-clutch-reason'], reason)
    assert.equal(headers['x-clutch-exit-code'], name === 'exits' ? '7' : undefined)
    assert.equal((await rest()).length, 1_000, name)
  }
  await deploy('traps-late', says(64 * KIB, 2, 'unreachable'))
  const { req, head, read, rest } = post('traps-late')
  req.end()
  assert.equal((await head()).statusCode, 200)
  assert.equal((await read(128 * KIB)).length, 128 * KIB)
  await assert.rejects(rest(), /aborted/)
  const { invocations } = await platform.api.compute.functions.invocations({
    orgId: platform.orgId,
    name: 'burns',
  })
  assert.deepEqual([invocations[0]?.reason, invocations[0]?.exit_code], ['fuel', null])
  assert.ok((invocations[0]?.fuel_used ?? 0) >= 5_000_000)
})

test('FN-9 100 MB of stdout to a slow reader: it comes whole, and nobody holds it', async () => {
  await deploy('floods', says(64 * KIB, 1_600, ''), { timeoutMs: 120_000 })
  // Once at full speed: what V8 keeps as room for garbage is there before it is measured.
  const warm = post('floods')
  warm.req.end()
  for await (const piece of await warm.head()) assert.ok((piece as Buffer).length > 0)
  const pids = (): number[] => [platform.engine.pid, agent.program.pid]
  const before = pids().map(residentMib)
  const { req, head } = post('floods')
  req.end()
  const res = await head()
  let [size, grown] = [0, 0]
  // It runs, and nothing was read yet.
  await until(
    'the invocation runs',
    async () => (await platform.metric('clutch_invocations_running')) > 0,
  )
  for await (const piece of res) {
    const [from, to] = [size, size + (piece as Buffer).length]
    size = to
    if (Math.floor(from / (10 * MIB)) === Math.floor(to / (10 * MIB))) continue
    await new Promise((resolve) => setTimeout(resolve, 50))
    grown = Math.max(grown, ...pids().map((pid, at) => residentMib(pid) - before[at]!))
  }
  assert.equal(size, 100 * MIB)
  assert.equal(res.trailers['x-clutch-exit-code'], '0')
  assert.ok(grown < 80, `a process grew by ${grown} MiB`)
})

test('FN-9 a long stdin streams through the guest and back, whole', async () => {
  const total = 64 * MIB
  const { req, head } = post('echo')
  const piece = Buffer.alloc(64 * KIB, 'stdin and stdout ')
  let sent = 0
  const writing = (async () => {
    for (; sent < total; sent += piece.length) if (!req.write(piece)) await once(req, 'drain')
    req.end()
  })()
  let size = 0
  for await (const bytes of await head()) size += (bytes as Buffer).length
  await writing
  assert.equal(size, total)
})

test('FN-9 a client that goes away ends its guest', async () => {
  await deploy('stays', says(64 * KIB, 1, '(loop $for_ever (br $for_ever))'), {
    timeoutMs: 600_000,
  })
  const { req, head } = post('stays')
  req.end()
  await head()
  req.destroy()
  await until(
    'nothing runs',
    async () => (await platform.metric('clutch_invocations_running')) === 0,
  )
})

test('FN-9 a guest that reads nothing of a long body answers all the same', async () => {
  await deploy('deaf', says(5, 1, ''))
  const { req, head, rest } = post('deaf', { 'content-length': String(512 * MIB) })
  req.write(Buffer.alloc(MIB))
  assert.equal((await head()).statusCode, 200)
  assert.equal((await rest()).length, 5)
  req.destroy()
})

test('FN-9 D44 a public function is for everybody; one for members is not', async () => {
  await deploy('open', ECHO, { public: true })
  const { req, rest } = exchange(`${platform.url}/fn/platform/open`)
  req.end('hello')
  assert.equal((await rest()).toString(), 'hello')
  for (const name of ['echo', 'nothing']) {
    const refused = exchange(`${platform.url}/fn/platform/${name}`)
    refused.req.end('hello')
    assert.equal((await refused.head()).statusCode, 401)
  }
})

test('FN-1 a component over 8 MiB is sent ahead, deployed by its hash, and runs', async () => {
  // A custom section makes it large: its bytes are the component's, whatever they say.
  const wasm = await parse(ECHO)
  const name = Buffer.from([4, ...Buffer.from('bulk')])
  const bulk = Buffer.alloc(9 * MIB, 0)
  const large = Buffer.concat([wasm, Buffer.from([0]), leb(name.length + bulk.length), name, bulk])
  const response = await fetch(`${platform.url}/v1/components?orgId=platform`, {
    method: 'POST',
    headers: { 'x-api-key': platform.key, 'content-type': 'application/octet-stream' },
    body: large,
  })
  assert.equal(response.status, 200)
  const { sha256, sizeBytes } = (await response.json()) as { sha256: string; sizeBytes: number }
  assert.equal(sizeBytes, large.length)
  const deployed = await platform.api.compute.functions.deploy({
    orgId: platform.orgId,
    name: 'large',
    componentSha256: sha256,
  })
  assert.equal(deployed.function.size_bytes, large.length)
  const { req, rest } = post('large')
  req.end('through it')
  assert.equal((await rest()).toString(), 'through it')
})

function leb(value: number): Buffer {
  const bytes: number[] = []
  for (let left = value; ; left >>>= 7) {
    if (left < 0x80) return Buffer.from([...bytes, left])
    bytes.push((left & 0x7f) | 0x80)
  }
}

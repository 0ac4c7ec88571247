import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { component, prepared, preview1, run, runWat, withRunner } from '#wasm/fixtures/run-wat.ts'
import { Runner } from '#wasm/runner.ts'

/** Above its cap: 100 ms, 250 ms under load (FN-4). */
const LATE_MS_MAX = 250

const exits = (code: number): string =>
  preview1(['proc_exit'], `(call $proc_exit (i32.const ${code}))`)

const SPIN = preview1([], '(loop $l (br $l))')

/** Copies stdin to stdout in reads of 4 KiB until its end. */
const ECHO = preview1(
  ['fd_read'],
  `(local $n i32)
   (loop $l
     (i32.store (i32.const 16) (i32.const 1024)) (i32.store (i32.const 20) (i32.const 4096))
     (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
     (local.set $n (i32.load (i32.const 24)))
     (if (local.get $n) (then (call $print (i32.const 1024) (local.get $n)) (br $l))))`,
)

test('FN-3 exit codes pass unchanged from preview 1', async () => {
  for (const code of [0, 1, 3, 137, 255]) {
    const { outcome } = await runWat(exits(code))
    assert.ok(outcome.kind === 'exited')
    assert.equal(outcome.exitCode, code)
    assert.equal(outcome.fuelUsed, 2)
  }
})

test('FN-3 an exit code past 255 stays a failure', async () => {
  for (const code of [256, -1]) {
    const { outcome } = await runWat(exits(code))
    assert.equal(outcome.kind === 'exited' && outcome.exitCode, 255)
  }
})

test('FN-3 a component exits by its result, by exit and by exit-with-code', async () => {
  const ok = await runWat(component('i32.const 0'))
  assert.equal(ok.outcome.kind === 'exited' && ok.outcome.exitCode, 0)
  const failed = await runWat(component('i32.const 1'))
  assert.equal(failed.outcome.kind === 'exited' && failed.outcome.exitCode, 1)
  const exit = component(
    'i32.const 3 call $x i32.const 0',
    `(import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
     (core func $ex (canon lower (func $exit "exit-with-code")))`,
    '(with "e" (instance (export "x" (func $ex))))',
    '(import "e" "x" (func $x (param i32)))',
  )
  const coded = await runWat(exit)
  assert.equal(coded.outcome.kind === 'exited' && coded.outcome.exitCode, 3)
  const plain = exit
    .replaceAll('exit-with-code', 'exit')
    .replace('(param "status-code" u8)', '(param "status" (result))')
  const one = await runWat(plain.replace('i32.const 3', 'i32.const 1'))
  assert.equal(one.outcome.kind === 'exited' && one.outcome.exitCode, 1)
  const zero = await runWat(plain.replace('i32.const 3', 'i32.const 0'))
  assert.equal(zero.outcome.kind === 'exited' && zero.outcome.exitCode, 0)
})

test('FN-3 stdin comes out of stdout, inline, in chunks and from a stream', async () => {
  await withRunner(await prepared(ECHO), async (runner) => {
    const small = Buffer.from('line\n\u0000\u00ff')
    assert.deepEqual((await run(runner, { stdin: small })).stdout, small)
    assert.equal((await run(runner)).stdout.length, 0)
    const large = Buffer.alloc(900_001, 'abcdefg')
    assert.deepEqual((await run(runner, { stdin: large })).stdout, large)
    async function* stream(): AsyncGenerator<Uint8Array> {
      for (const part of ['one ', '', 'two ', 'three']) {
        await systemClock.sleep(1)
        yield Buffer.from(part)
      }
    }
    assert.equal((await run(runner, { stdin: stream() })).stdout.toString(), 'one two three')
  })
})

test('FN-3 a guest that does not read its stdin leaves nothing for the next', async () => {
  await withRunner(await prepared(ECHO), async (runner) => {
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) yield Buffer.alloc(1000)
    }
    const { outcome } = await run(runner, { stdin: endless(), timeoutMs: 300 })
    assert.equal(outcome.kind, 'timeout')
  })
  await withRunner(await prepared(exits(0)), async (runner) => {
    let closed = false
    async function* watched(): AsyncGenerator<Uint8Array> {
      try {
        yield Buffer.from('never read')
      } finally {
        closed = true
      }
    }
    const source = watched()
    await source.next()
    assert.equal((await run(runner, { stdin: source })).outcome.kind, 'exited')
    assert.equal((await run(runner)).outcome.kind, 'exited')
    assert.ok(closed)
  })
})

test('FN-3 a source of stdin that fails is a fault, not the guest', async () => {
  await withRunner(await prepared(ECHO), async (runner) => {
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('a')
      throw new Error('connection reset')
    }
    const { outcome } = await run(runner, { stdin: broken() })
    assert.equal(outcome.kind, 'fault')
    assert.match(outcome.kind === 'fault' ? outcome.message : '', /connection reset/)
  })
})

/** Prints the strings of args or environ, zero bytes included. */
const listing = (kind: 'args' | 'environ'): string =>
  preview1(
    [`${kind}_sizes_get`, `${kind}_get`],
    `(drop (call $${kind}_sizes_get (i32.const 16) (i32.const 20)))
     (drop (call $${kind}_get (i32.const 32) (i32.const 1024)))
     (call $print (i32.const 1024) (i32.load (i32.const 20)))`,
  )

test('FN-3 arguments follow the program name, the environment is only what was given', async () => {
  const args = await runWat(listing('args'), { args: ['a', '', 'ü b'], program: 'hello' })
  assert.equal(args.stdout.toString(), 'hello\0a\0\0ü b\0')
  const env = await runWat(listing('environ'), { env: { FOO: 'bar', EMPTY: '' } })
  assert.equal(env.stdout.toString(), 'FOO=bar\0EMPTY=\0')
  assert.equal((await runWat(listing('environ'))).stdout.length, 0)
})

test('FN-5 clocks tell the time and random bytes differ', async () => {
  const clock = preview1(
    ['clock_time_get'],
    `(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 64)))
     (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 72)))
     (call $print (i32.const 64) (i32.const 16))`,
  )
  const before = BigInt(systemClock.now()) * 1_000_000n
  const { stdout } = await runWat(clock)
  const wall = stdout.readBigUInt64LE(0)
  assert.ok(wall >= before && wall < before + 60_000_000_000n)
  assert.ok(stdout.readBigUInt64LE(8) > 0n)
  const random = preview1(
    ['random_get'],
    '(drop (call $random_get (i32.const 64) (i32.const 32))) (call $print (i32.const 64) (i32.const 32))',
  )
  await withRunner(await prepared(random), async (runner) => {
    const [one, two] = [await run(runner), await run(runner)]
    assert.equal(one.stdout.length, 32)
    assert.notDeepEqual(one.stdout, two.stdout)
  })
})

test('FN-5 poll sleeps for what it was asked', async () => {
  const sleep = preview1(
    ['poll_oneoff'],
    `(i64.store (i32.const 64) (i64.const 7)) (i32.store (i32.const 80) (i32.const 1))
     (i64.store (i32.const 88) (i64.const 50000000))
     (drop (call $poll_oneoff (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))
     (call $print (i32.const 256) (i32.const 32))`,
  )
  const { outcome, stdout } = await runWat(sleep)
  assert.ok(outcome.durationMs >= 50 && outcome.durationMs < 2000, `${outcome.durationMs}`)
  assert.equal(stdout.readBigUInt64LE(0), 7n)
  assert.equal(stdout.readUInt16LE(8), 0)
})

test('FN-4 files and sockets of preview 1 answer with an errno', async () => {
  const wat = preview1(
    ['path_open', 'sock_send'],
    `(i32.store8 (i32.const 64) (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1)
       (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))
     (i32.store8 (i32.const 65) (call $sock_send (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
     (call $print (i32.const 64) (i32.const 2))`,
  )
  assert.deepEqual([...(await runWat(wat)).stdout], [8, 57])
})

test('FN-3 a pointer outside the memory is the errno of the guest', async () => {
  const wat = preview1(
    ['random_get'],
    `(i32.store8 (i32.const 64) (call $random_get (i32.const -8) (i32.const 100)))
     (call $print (i32.const 64) (i32.const 1))`,
  )
  assert.deepEqual([...(await runWat(wat)).stdout], [21])
})

test('FN-4 a loop is killed at its cap, and its runner is dead and says so', async () => {
  await withRunner(await prepared(SPIN), async (runner) => {
    const { pid } = runner
    const began = systemClock.monotonic()
    const { outcome } = await run(runner, { timeoutMs: 300 })
    const took = systemClock.monotonic() - began
    assert.equal(outcome.kind, 'timeout')
    assert.ok(took >= 300 && took <= 300 + LATE_MS_MAX, `${took}`)
    assert.equal(runner.state, 'dead')
    assert.ok(!existsSync(`/proc/${pid}`))
    const again = await run(runner)
    assert.equal(again.outcome.kind, 'fault')
    assert.match(
      again.outcome.kind === 'fault' ? again.outcome.message : '',
      /dead: killed after 300 ms/,
    )
  })
})

test('FN-3 a guest that burns its fuel ends for it, and its runner serves the next', async () => {
  const counts = preview1(
    ['args_sizes_get'],
    `(local $n i32)
     (drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
     (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (loop $for_ever (br $for_ever))))
     (local.set $n (i32.const 1000))
     (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))`,
  )
  await withRunner(await prepared(counts), async (runner) => {
    const first = await run(runner, { fuelMax: 1_000_000 })
    assert.equal(first.outcome.kind, 'exited')
    const { fuelUsed } = first.outcome
    assert.ok(fuelUsed !== null && fuelUsed > 1000 && fuelUsed < 100_000, `${fuelUsed}`)
    const spun = await run(runner, { args: ['spin'], fuelMax: 1_000_000 })
    assert.equal(spun.outcome.kind, 'fuel')
    assert.match(spun.outcome.kind === 'fuel' ? spun.outcome.message : '', /fuel .*main/)
    assert.ok((spun.outcome.fuelUsed ?? 0) >= 1_000_000)
    assert.equal(runner.state, 'idle')
    const again = await run(runner)
    assert.deepEqual([again.outcome.kind, again.outcome.fuelUsed], ['exited', fuelUsed])
    assert.equal((await run(runner, { fuelMax: fuelUsed })).outcome.kind, 'exited')
    assert.equal((await run(runner, { fuelMax: 10 })).outcome.kind, 'fuel')
  })
})

test('FN-4 a sleeping guest is killed at its cap too, and so is a start function that loops', async () => {
  const sleeper = preview1(
    ['poll_oneoff'],
    `(i64.store (i32.const 88) (i64.const 0x7fffffffffffffff)) (i32.store (i32.const 80) (i32.const 1))
     (drop (call $poll_oneoff (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))`,
  )
  assert.equal((await runWat(sleeper, { timeoutMs: 200 })).outcome.kind, 'timeout')
  const starter = preview1(
    [],
    'nop',
    '(memory (export "memory") 1) (func $s (loop $l (br $l))) (start $s)',
  )
  assert.equal((await runWat(starter, { timeoutMs: 200 })).outcome.kind, 'timeout')
})

test('FN-3 a cancelled invocation ends at once', async () => {
  await withRunner(await prepared(SPIN), async (runner) => {
    const stop = new AbortController()
    systemClock.after(50, () => stop.abort(new Error('the caller left')))
    const { outcome } = await run(runner, { signal: stop.signal })
    assert.equal(outcome.kind, 'cancelled')
    assert.match(outcome.kind === 'cancelled' ? outcome.message : '', /the caller left/)
  })
  await withRunner(await prepared(exits(0)), async (runner) => {
    const { outcome } = await run(runner, { signal: AbortSignal.abort(new Error('before')) })
    assert.equal(outcome.kind, 'cancelled')
    assert.equal(runner.state, 'idle')
  })
})

const EAT = (then: string): string =>
  preview1(
    ['proc_exit'],
    `(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) ${then}`,
  )

test('FN-3 a guest that is refused memory and then traps ended for memory', async () => {
  const { outcome } = await runWat(EAT('unreachable'), {}, 16)
  assert.equal(outcome.kind, 'memory')
  assert.equal(outcome.memPeakMb, 16)
  const again = await runWat(
    component('(drop (memory.grow (i32.const 5000))) unreachable', '', '', '(memory 1)'),
  )
  assert.equal(again.outcome.kind, 'memory')
})

test('FN-3 a guest that copes with a refused growth exits as it likes', async () => {
  const { outcome } = await runWat(EAT('(call $proc_exit (i32.const 9))'), {}, 16)
  assert.equal(outcome.kind === 'exited' && outcome.exitCode, 9)
})

test('FN-4 the cap is the own maximum of a module when that is lower', async () => {
  const wat = EAT('unreachable').replace(
    '(memory (export "memory") 1)',
    '(memory (export "memory") 1 32)',
  )
  assert.equal((await runWat(wat)).outcome.memPeakMb, 2)
})

test('FN-4 all memories of a guest share its cap, in one instance or in many', async () => {
  const grows = Array.from({ length: 20 }, (_, i) => `(drop (memory.grow ${i} (i32.const 60)))`)
  const memories = `(memory (export "memory") 1) ${'(memory 1)'.repeat(19)}`
  const one = await runWat(preview1([], grows.join(' '), memories), {}, 16)
  assert.equal(one.outcome.kind, 'exited')
  // Each began with a page: 256 pages hold 20 and three growths more.
  assert.equal(one.outcome.memPeakMb, (20 + 3 * 60) / 16)
  const after = preview1([], `${grows.join(' ')} unreachable`, memories)
  assert.equal((await runWat(after, {}, 16)).outcome.kind, 'memory')
  const many = (pages: string, times: number): string =>
    component(
      'i32.const 0',
      `(core module $x (memory ${pages})) ${'(core instance (instantiate $x))'.repeat(times)}`,
    )
  const started = (await runWat(many('200', 40), {}, 16)).outcome
  assert.equal(started.kind, 'memory')
  assert.match(started.kind === 'memory' ? started.message : '', /25 MiB together; memMb allows 16/)
  assert.equal((await runWat(many('0', 200), {}, 16)).outcome.kind, 'memory')
  assert.equal((await runWat(many('1', 50), {}, 16)).outcome.kind, 'exited')
})

test('FN-4 what grows in a start function is counted as it grows', async () => {
  const wat = (then: string): string =>
    component(
      'i32.const 0',
      `(core module $x (memory 1) (func $s (if (i32.eq (memory.grow (i32.const 250)) (i32.const -1)) (then ${then})))
       (start $s))
      (core instance (instantiate $x)) (core instance (instantiate $x))`,
    )
  const { outcome } = await runWat(wat('unreachable'), {}, 16)
  assert.equal(outcome.kind, 'memory')
  const copes = (await runWat(wat('nop'), {}, 16)).outcome
  assert.equal(copes.kind, 'exited')
  assert.equal(Math.round((copes.memPeakMb ?? 0) * 16), 252)
})

test('FN-4 many memories and endless tables end the guest, not the machine', async () => {
  const memories = Array.from({ length: 60 }, (_, i) => `(memory $m${i} 1)`).join(' ')
  const fills = Array.from(
    { length: 60 },
    (_, i) =>
      `(drop (memory.grow $m${i} (i32.const 1000))) (memory.fill $m${i} (i32.const 0) (i32.const 1) (i32.const 65000000))`,
  ).join(' ')
  const many = await runWat(preview1([], fills, `(memory (export "memory") 1) ${memories}`))
  assert.match(many.outcome.kind, /^(memory|trap)$/)
  const tables = Array.from({ length: 40 }, (_, i) => `(table $t${i} 1 externref)`).join(' ')
  const grows = Array.from(
    { length: 40 },
    (_, i) => `(drop (table.grow $t${i} (ref.null extern) (i32.const 9000000)))`,
  )
  const table = await runWat(
    preview1([], grows.join(' '), `(memory (export "memory") 1) ${tables}`),
  )
  assert.match(table.outcome.kind, /^(memory|trap|exited)$/)
})

test('FN-3 a trap names the functions it happened in', async () => {
  const wat = preview1(
    [],
    '(call $outer)',
    `(memory (export "memory") 1)
    (func $inner unreachable) (func $outer (call $inner))`,
  )
  const { outcome } = await runWat(wat)
  assert.equal(outcome.kind, 'trap')
  assert.match(
    outcome.kind === 'trap' ? outcome.message : '',
    /^unreachable instruction executed \(at .*inner < .*outer < .*main\)$/,
  )
  const inComponent = await runWat(component('unreachable'))
  assert.match(
    inComponent.outcome.kind === 'trap' ? inComponent.outcome.message : '',
    /^unreachable instruction executed \(at .*main\)$/,
  )
})

test('FN-3 endless recursion is a trap, deep recursion is not', async () => {
  const recursing = (body: string): string =>
    preview1(
      [],
      '(drop (call $f (i32.const 20000)))',
      `(memory (export "memory") 1) (func $f (param i32) (result i32) ${body})`,
    )
  const endless = await runWat(recursing('(i32.add (i32.const 1) (call $f (local.get 0)))'))
  assert.equal(endless.outcome.kind, 'trap')
  assert.match(
    endless.outcome.kind === 'trap' ? endless.outcome.message : '',
    /call stack exhausted \(at .*f < /,
  )
  const deep = await runWat(
    recursing(`(if (result i32) (local.get 0)
      (then (i32.add (i32.const 1) (call $f (i32.sub (local.get 0) (i32.const 1))))) (else (i32.const 0)))`),
  )
  assert.equal(deep.outcome.kind, 'exited')
})

test('FN-3 ten megabytes of output are cut at the limit and the guest runs on', async () => {
  const wat = preview1(
    ['proc_exit'],
    `(local $i i32) (memory.fill (i32.const 1024) (i32.const 0x61) (i32.const 10000))
     (loop $l
       (call $print (i32.const 1024) (i32.const 10000))
       (local.set $i (i32.add (local.get $i) (i32.const 1)))
       (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
     (call $proc_exit (i32.const 5))`,
  )
  const { outcome, stdout } = await runWat(wat)
  assert.equal(outcome.kind === 'exited' && outcome.exitCode, 5)
  assert.equal(stdout.length, 1024 * 1024)
  assert.deepEqual([outcome.stdoutTruncated, outcome.stderrTruncated], [true, false])
  const toStderr = wat.replace(
    '(i32.const 1) (i32.const 0) (i32.const 1)',
    '(i32.const 2) (i32.const 0) (i32.const 1)',
  )
  const other = await runWat(toStderr)
  assert.equal(other.stderr.length, 256 * 1024)
  assert.deepEqual([other.outcome.stdoutTruncated, other.outcome.stderrTruncated], [false, true])
})

test('FN-3 output arrives while the guest still runs', async () => {
  const wat = preview1(
    [],
    '(i32.store8 (i32.const 64) (i32.const 0x68)) (call $print (i32.const 64) (i32.const 1)) (loop $l (br $l))',
  )
  await withRunner(await prepared(wat), async (runner) => {
    const stop = new AbortController()
    let seen = ''
    const { outcome } = await run(runner, {
      signal: stop.signal,
      onStdout: (chunk) => {
        seen += Buffer.from(chunk).toString()
        stop.abort(new Error('seen'))
      },
    })
    assert.equal(outcome.kind, 'cancelled')
    assert.equal(seen, 'h')
  })
})

test('FN-4 each invocation has a fresh instance', async () => {
  const wat = preview1(
    ['proc_exit'],
    '(global.set $n (i32.add (global.get $n) (i32.const 1))) (call $proc_exit (global.get $n))',
    '(memory (export "memory") 1) (global $n (mut i32) (i32.const 0))',
  )
  await withRunner(await prepared(wat), async (runner) => {
    for (let i = 0; i < 3; i++) {
      const { outcome } = await run(runner)
      assert.equal(outcome.kind === 'exited' && outcome.exitCode, 1)
    }
  })
})

test('FN-4 a runner survives traps and exits, and runs one invocation at a time', async () => {
  const wat = preview1(
    ['args_sizes_get', 'proc_exit'],
    `(drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then unreachable))`,
  )
  await withRunner(await prepared(wat), async (runner) => {
    assert.equal((await run(runner, { args: ['x'] })).outcome.kind, 'trap')
    assert.equal((await run(runner)).outcome.kind, 'exited')
    const first = run(runner)
    await assert.rejects(
      run(runner),
      (error) => error instanceof AppError && error.code === 'INVALID_STATE',
    )
    assert.equal((await first).outcome.kind, 'exited')
  })
})

test('FN-4 no child is left after close, in mid-invocation either', async () => {
  const artifact = await prepared(SPIN)
  const runner = await Runner.start({
    artifact,
    memMb: 64,
    node: process.execPath,
    clock: systemClock,
  })
  const running = run(runner)
  await runner.close()
  assert.equal((await running).outcome.kind, 'cancelled')
  assert.equal(runner.state, 'dead')
  assert.ok(!existsSync(`/proc/${runner.pid}`))
})

test('FN-4 a blank runner takes its artifact later', async () => {
  const runner = await Runner.blank({ memMb: 64, node: process.execPath, clock: systemClock })
  await runner.load({ artifact: await prepared(exits(4)), memMb: 64 })
  const { outcome } = await run(runner)
  await runner.close()
  assert.equal(outcome.kind === 'exited' && outcome.exitCode, 4)
})

test('FN-4 a spoiled artifact and a missing node binary are refusals that leave no child', async () => {
  const options = { memMb: 64, node: process.execPath, clock: systemClock }
  await assert.rejects(
    Runner.start({ ...options, artifact: Buffer.from('nonsense') }),
    (error) => error instanceof AppError && error.details.reason === 'BAD_ARTIFACT',
  )
  await assert.rejects(
    Runner.start({ ...options, artifact: await prepared(SPIN), node: '/no/such/node' }),
    (error) =>
      error instanceof AppError &&
      error.details.reason === 'RUNNER_FAILED' &&
      /no\/such\/node/.test(error.message),
  )
})

test('FN-4 a runner whose process is killed from outside is a fault, never the guest', async () => {
  await withRunner(await prepared(SPIN), async (runner) => {
    const running = run(runner)
    assert.ok(runner.pid !== undefined)
    process.kill(runner.pid, 'SIGKILL')
    const { outcome } = await running
    assert.equal(outcome.kind, 'fault')
    assert.match(outcome.kind === 'fault' ? outcome.message : '', /SIGKILL/)
  })
})

test('FN-4 host calls at the very edge of the stack leave the runner in step or end it, without a fault', async () => {
  // Goes down with wide frames, and at every depth calls its host to read and to write, catching what that throws.
  const wide = Array.from({ length: 60 }, (_, i) => `(local.get ${i})`)
  const adds = '(i64.add)'.repeat(59)
  const wat = preview1(
    ['fd_read'],
    `(drop (call $f ${'(i64.const 1)'.repeat(60)}))`,
    `(memory (export "memory") 2)
     (func $touch
       (i32.store (i32.const 16) (i32.const 1024)) (i32.store (i32.const 20) (i32.const 1))
       (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
       (call $print (i32.const 1024) (i32.const 7)))
     (func $f (param ${'i64 '.repeat(60)}) (result i64)
       (block $caught (try_table (catch_all $caught) (call $touch)))
       (call $f ${wide.join(' ')}) ${wide.join(' ')} ${adds} i64.add)`,
  )
  await withRunner(await prepared(wat), async (runner) => {
    async function* input(): AsyncGenerator<Uint8Array> {
      for (;;) yield Buffer.from('x')
    }
    for (let i = 0; i < 5 && runner.state === 'idle'; i++) {
      const { outcome } = await run(runner, { stdin: input(), timeoutMs: 20_000 })
      assert.notEqual(outcome.kind, 'fault', JSON.stringify(outcome))
    }
  })
})

test('FN-3 a trap message is bounded and printable, whatever the guest calls its functions', async () => {
  const name = `$"${'\\1b[31m\\c2\\9b'.repeat(10)}${'long'.repeat(1000)}"`
  const wat = preview1(
    [],
    `(call ${name})`,
    `(memory (export "memory") 1) (func ${name} unreachable)`,
  )
  const { outcome } = await runWat(wat)
  assert.ok(outcome.kind === 'trap')
  assert.ok(outcome.message.length < 2000)
  assert.match(outcome.message, /^[ -~]+$/)
})

// Stdout as a stream: whole, held back while nobody takes it, and never gathered.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { component, prepared, preview1, run, withRunner } from '#wasm/fixtures/run-wat.ts'
import type { InvokeSpec, Runner } from '#wasm/runner.ts'

const MIB = 1024 * 1024
const GIB = 1024 * MIB
const WRITE_BYTES = 512 * 1024
/** What the kernel holds of a pipe, what Node reads ahead, and a frame on each side. */
const ON_THE_WAY_MAX = 2 * MIB

/** Writes 512 KiB `count` times, each block of another letter, then exits 7. */
const flood = (count: number): string =>
  preview1(
    ['proc_exit'],
    `(local $i i32)
     (loop $l
       (memory.fill (i32.const 1024) (i32.add (i32.const 97) (i32.rem_u (local.get $i) (i32.const 26))) (i32.const ${WRITE_BYTES}))
       (call $print (i32.const 1024) (i32.const ${WRITE_BYTES}))
       (local.set $i (i32.add (local.get $i) (i32.const 1)))
       (br_if $l (i32.lt_u (local.get $i) (i32.const ${count}))))
     (call $proc_exit (i32.const 7))`,
    '(memory (export "memory") 10)',
  )

/** Resident bytes of a process, or of this one. */
function residentOf(pid: number | 'self'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) * 1024
}

type Counted = { bytes: number; sound: boolean }

/** Checks the letters of `flood` as they come; keeps none. */
function counting(): { seen: Counted; take: (chunk: Uint8Array) => void } {
  const seen: Counted = { bytes: 0, sound: true }
  return {
    seen,
    take(chunk) {
      for (const at of [0, chunk.length - 1]) {
        const letter = 97 + (Math.floor((seen.bytes + at) / WRITE_BYTES) % 26)
        if (chunk[at] !== letter) seen.sound = false
      }
      seen.bytes += chunk.length
    },
  }
}

const discard = { args: [], env: {}, stdin: new Uint8Array(0), onStderr: () => undefined }

const stream = (runner: Runner, spec: Pick<InvokeSpec, 'onStdout'> & Partial<InvokeSpec>) =>
  runner.invoke({ ...discard, timeoutMs: 60_000, stdout: 'whole', ...spec })

test('FN-9 a gigabyte of stdout streams whole, in flat memory on both sides', async () => {
  await withRunner(await prepared(flood(GIB / WRITE_BYTES)), async (runner) => {
    const { seen, take } = counting()
    const before = residentOf('self')
    let most = 0
    let calls = 0
    const outcome = await stream(runner, {
      onStdout(chunk) {
        take(chunk)
        if (++calls % 256 !== 0) return undefined
        most = Math.max(most, residentOf('self'))
        return new Promise((resolve) => setImmediate(resolve))
      },
    })
    assert.equal(outcome.kind === 'exited' && outcome.exitCode, 7)
    assert.deepEqual(seen, { bytes: GIB, sound: true })
    assert.equal(outcome.stdoutTruncated, false)
    assert.ok(most - before < 150 * MIB, `this process grew by ${(most - before) / MIB} MiB`)
    assert.ok(residentOf(runner.pid ?? 0) < 200 * MIB)
  })
})

test('FN-3 a gigabyte of stdout that is cut leaves a megabyte, and the runner as it was', async () => {
  await withRunner(await prepared(flood(GIB / WRITE_BYTES)), async (runner) => {
    for (let i = 0; i < 2; i++) {
      const { outcome, stdout } = await run(runner)
      assert.equal(outcome.kind === 'exited' && outcome.exitCode, 7)
      assert.equal(stdout.length, MIB)
      assert.deepEqual([outcome.stdoutTruncated, outcome.stderrTruncated], [true, false])
    }
    assert.ok(residentOf(runner.pid ?? 0) < 200 * MIB)
  })
})

test('FN-9 a guest waits in its write while nobody takes its stdout, and goes on when somebody does', async () => {
  await withRunner(await prepared(flood(64)), async (runner) => {
    const { seen, take } = counting()
    const { promise: room, resolve: makeRoom } = Promise.withResolvers<void>()
    const running = stream(runner, {
      onStdout(chunk) {
        take(chunk)
        return room
      },
    })
    let last = -1
    await until('no more comes', async () => {
      await systemClock.sleep(100)
      const still = seen.bytes === last
      last = seen.bytes
      return still && seen.bytes > 0
    })
    assert.ok(seen.bytes < ON_THE_WAY_MAX, `${seen.bytes}`)
    assert.equal(runner.state, 'busy')
    makeRoom()
    const outcome = await running
    assert.equal(outcome.kind === 'exited' && outcome.exitCode, 7)
    assert.deepEqual(seen, { bytes: 64 * WRITE_BYTES, sound: true })
  })
})

for (const how of ['timeout', 'cancelled'] as const)
  test(`FN-4 a guest that is held back ends on time (${how})`, async () => {
    await withRunner(await prepared(flood(64)), async (runner) => {
      const stop = new AbortController()
      const began = systemClock.monotonic()
      if (how === 'cancelled') systemClock.after(200, () => stop.abort(new Error('it left')))
      const outcome = await stream(runner, {
        onStdout: () => new Promise(() => undefined),
        timeoutMs: how === 'timeout' ? 200 : 60_000,
        signal: stop.signal,
      })
      assert.equal(outcome.kind, how)
      const took = systemClock.monotonic() - began
      assert.ok(took >= 190 && took < 700, `${took}`)
      assert.equal(runner.state, 'dead')
    })
  })

test('FN-9 whoever took the stdout and failed ends the guest, as a cancelled one', async () => {
  await withRunner(await prepared(flood(64)), async (runner) => {
    const outcome = await stream(runner, {
      onStdout: () => Promise.reject(new Error('the line is cut')),
    })
    assert.equal(outcome.kind, 'cancelled')
    assert.match(outcome.kind === 'cancelled' ? outcome.message : '', /the line is cut/)
  })
})

test('FN-9 what a guest wrote before its time was up is handed over', async () => {
  const wat = preview1(
    [],
    `(memory.fill (i32.const 1024) (i32.const 97) (i32.const 100000))
     (call $print (i32.const 1024) (i32.const 100000)) (loop $l (br $l))`,
    '(memory (export "memory") 2)',
  )
  for (const stdout of ['cut', 'whole'] as const)
    await withRunner(await prepared(wat), async (runner) => {
      const { outcome, stdout: written } = await run(runner, { stdout, timeoutMs: 500 })
      assert.equal(outcome.kind, 'timeout')
      assert.equal(written.length, 100_000)
    })
})

test('FN-9 stderr is cut beside a stdout that streams whole, and a component streams too', async () => {
  const lots = flood(4).replace(
    '(i32.const 1) (i32.const 0) (i32.const 1)',
    '(i32.const 2) (i32.const 0) (i32.const 1)',
  )
  await withRunner(await prepared(lots), async (runner) => {
    const { outcome, stderr } = await run(runner, { stdout: 'whole' })
    assert.equal(stderr.length, 256 * 1024)
    assert.deepEqual([outcome.stdoutTruncated, outcome.stderrTruncated], [false, true])
  })
  await withRunner(await prepared(component('i32.const 0')), async (runner) => {
    assert.equal((await run(runner, { stdout: 'whole' })).outcome.kind, 'exited')
  })
})

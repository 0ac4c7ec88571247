import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { test, type TestContext } from 'node:test'
import { systemClock, type Clock } from '#lib/clock.ts'
import { descendants, isGone, processAt } from '#sim/bench/process-tree.ts'
import { until } from '#lib/until.ts'
import type { Runner } from '#wasm/runner.ts'
import { diag, diagArtifact } from '#agent/drivers/wasm/diag.ts'
import { prepared, preview1, run as runOnce } from '#wasm/fixtures/run-wat.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import { residentMb } from '#agent/drivers/wasm/resident.ts'
import { RunnerPool, type PoolDeps } from '#agent/drivers/wasm/runner-pool.ts'

const artifact = diagArtifact()
const one = { functionId: 'fn_1', sha256: 'one', memMb: 16, cpuMillis: 1000 }
const two = { functionId: 'fn_2', sha256: 'two', memMb: 16, cpuMillis: 1000 }
/** A guest of 16 MB and its runner. */
const COST_MB = 80

function pool(t: TestContext, options: Partial<PoolDeps> = {}): RunnerPool {
  const made = new RunnerPool({
    clock: systemClock,
    node: process.execPath,
    memMbMax: 4 * COST_MB,
    artifact: async () => artifact,
    ...options,
  })
  t.after(() => made.close())
  return made
}

const pidOf = async (runner: Runner): Promise<number> => runner.pid ?? 0
const run = async (runner: Runner): Promise<boolean> =>
  (await diag(runner, new AbortController().signal)).ok

test('FN-4 a runner is kept warm for its artifact and lent to one invocation at a time', async (t) => {
  const runners = pool(t)
  const first = await runners.with(one, pidOf)
  assert.equal(await runners.with(one, run), true)
  assert.equal(await runners.with(one, pidOf), first)
  await runners.with(one, async (lent) => {
    const other = await runners.with(one, pidOf)
    assert.notEqual(other, lent.pid)
  })
  assert.notEqual(await runners.with(two, pidOf), first)
})

test('FN-4 another function with the same bytes has a child of its own', async (t) => {
  const runners = pool(t)
  const first = await runners.with(one, pidOf)
  assert.notEqual(await runners.with({ ...one, functionId: 'fn_other' }, pidOf), first)
  assert.equal(await runners.with(one, pidOf), first)
})

test('FN-4 the runner idle longest makes room; when all are busy the next is refused', async (t) => {
  const runners = pool(t, { memMbMax: 2 * COST_MB })
  const first = await runners.with(one, pidOf)
  const second = await runners.with(two, pidOf)
  const before = processAt(first)
  assert.ok(before)
  await runners.with(
    { functionId: 'fn_3', sha256: 'three', memMb: 16, cpuMillis: 1000 },
    async () => {
      assert.ok(isGone(before))
      assert.equal(await runners.with(two, pidOf), second)
      await runners.with(two, async () => {
        await assert.rejects(runners.with(one, pidOf), {
          code: 'UNAVAILABLE',
          details: { reason: 'NODE_FULL' },
        })
      })
    },
  )
  assert.equal(runners.size, 2)
})

test('FN-4 a runner that died is not lent again', async (t) => {
  const runners = pool(t)
  const first = await runners.with(one, async (runner) => {
    process.kill(runner.pid ?? 0, 'SIGKILL')
    await runner.ended
    return runner.pid
  })
  assert.notEqual(await runners.with(one, pidOf), first)
  assert.equal(await runners.with(one, run), true)
})

test('FN-4 a runner that nobody used for a while is closed', async (t) => {
  const timers: (() => void)[] = []
  const clock: Clock = {
    ...systemClock,
    after: (ms, fn) => {
      if (ms !== 4321) return systemClock.after(ms, fn)
      timers.push(fn)
      return () => void timers.splice(timers.indexOf(fn), 1)
    },
  }
  const runners = pool(t, { clock, idleMs: 4321 })
  await runners.with(one, pidOf)
  await runners.with(one, pidOf)
  assert.equal(timers.length, 1)
  assert.equal(runners.size, 1)
  timers[0]?.()
  await until('it is closed', () => runners.size === 0)
})

test('ND-19 closing the pool leaves no process, the blank one included', async (t) => {
  const runners = pool(t, { memMbMax: 4_000 })
  runners.warm()
  const pids = [await runners.with(one, pidOf), await runners.with(two, pidOf)]
  runners.warm()
  const processes = pids.map((pid) => processAt(pid))
  await runners.close()
  for (const each of processes) assert.ok(each && isGone(each))
  await assert.rejects(runners.with(one, pidOf), { code: 'UNAVAILABLE' })
})

test('FN-4 an artifact that does not load is told, and the pool goes on', async (t) => {
  const runners = pool(t, {
    memMbMax: 4_000,
    artifact: async (sha256) => (sha256 === 'two' ? Buffer.from('no artifact') : artifact),
  })
  runners.warm()
  await assert.rejects(runners.with(two, pidOf), { code: 'INVALID' })
  assert.equal(await runners.with(one, run), true)
  assert.equal(runners.size, 1)
})

/** Pids of the blank children: those of this process that no entry holds. */
const childrenNow = (): number[] => descendants(process.pid).map(({ pid }) => pid)

test('FN-4 two blank children wait, booked, and are replaced when they are taken or die', async (t) => {
  const before = new Set(childrenNow())
  const runners = pool(t, { memMbMax: 4_000 })
  runners.warm()
  await until('two wait', () => runners.blanks === 2 && fresh(before).length >= 2)
  const first = await runners.with(one, pidOf)
  assert.equal(runners.size, 1)
  await until('it was replaced', () => runners.blanks === 2)
  for (const pid of fresh(before)) if (pid !== first && isTop(pid)) process.kill(pid, 'SIGKILL')
  await until('they are missed', () => runners.blanks === 0)
  await until('they are replaced after a while', () => runners.blanks === 2)
  assert.equal(await runners.with(two, run), true)
})

test('FN-4 on a full node no blank child is started for the room that another runner takes', async (t) => {
  const runners = pool(t, { memMbMax: 2 * COST_MB })
  await runners.with(one, pidOf)
  await runners.with(two, pidOf)
  const started = new Set<number>()
  for (const round of [3, 4, 5]) {
    const lent = runners.with({ ...one, functionId: `fn_${round}` }, pidOf)
    await until('it runs', async () => {
      for (const pid of childrenNow().filter(isTop)) started.add(pid)
      return Promise.race([lent.then(() => true), systemClock.sleep(1).then(() => false)])
    })
    assert.equal(runners.blanks, 0)
  }
  // The two that there were, and one for each function.
  assert.equal(started.size, 5)
})

test('FN-4 who books by the answers is not refused: what is about to leave is waited for', async (t) => {
  const runners = pool(t, { memMbMax: COST_MB, servedMax: 1 })
  const pids = new Set<number>()
  for (let i = 0; i < 4; i++) pids.add(await runners.with(one, pidOf))
  assert.equal(pids.size, 4)
})

const fresh = (before: Set<number>): number[] => childrenNow().filter((pid) => !before.has(pid))
const isTop = (pid: number): boolean => processAt(pid)?.parent === process.pid

test('FN-4 blank children are booked: they wait only where there is room, and make room first', async (t) => {
  const runners = pool(t, { memMbMax: COST_MB + 64 })
  runners.warm()
  await until('two wait', () => runners.blanks === 2)
  await runners.with(one, async () => {
    // 80 of 144 MB are taken: one blank child fits beside it.
    await until('one waits', () => runners.blanks === 1)
    await assert.rejects(runners.with(two, pidOf), { details: { reason: 'NODE_FULL' } })
  })
  await runners.with({ ...two, memMb: 64 }, async () => {
    assert.equal(runners.size, 1)
    assert.equal(runners.blanks, 0)
  })
  const none = pool(t, { memMbMax: 63 })
  none.warm()
  assert.equal(none.blanks, 0)
})

test('FN-4 a blank child that does not start is tried again later each time, and its memory is given back', async (t) => {
  const waits: number[] = []
  const timers: (() => void)[] = []
  const clock: Clock = {
    ...systemClock,
    after: (ms, fn) => {
      if (![1_000, 2_000, 4_000].includes(ms)) return systemClock.after(ms, fn)
      waits.push(ms)
      timers.push(fn)
      return () => undefined
    },
  }
  const runners = pool(t, { clock, node: '/no/such/node', memMbMax: 64 })
  runners.warm()
  for (let i = 1; i <= 3; i++) {
    await until('it failed', () => waits.length === i && runners.blanks === 0)
    timers.shift()?.()
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000])
})

test('FN-4 a runner is replaced after so many invocations, and when its process has grown', async (t) => {
  const runners = pool(t, { memMbMax: 4_000, servedMax: 3 })
  const pids: number[] = []
  for (let i = 0; i < 4; i++) pids.push(await runners.with(one, pidOf))
  assert.deepEqual(new Set(pids.slice(0, 3)).size, 1)
  assert.notEqual(pids[3], pids[0])
  await until('it is gone', () => !existsSync(`/proc/${pids[0]}`))
  const grown = pool(t, { memMbMax: 4_000, residentMbMax: -one.memMb })
  const before = await grown.with(one, pidOf)
  for (let i = 1; i < 100; i++) assert.equal(await grown.with(one, pidOf), before)
  assert.notEqual(await grown.with(one, pidOf), before)
})

test('FN-4 another CPU limit of the same function is another child', async (t) => {
  const runners = pool(t)
  const first = await runners.with(one, pidOf)
  assert.notEqual(await runners.with({ ...one, cpuMillis: 500 }, pidOf), first)
})

test('FN-4 a resident size is what the process inside the wrappers of the jail has for itself', async (t) => {
  const runners = pool(t)
  const size = await runners.with(one, async ({ pid }) => residentMb(pid))
  assert.ok(size !== undefined && size > 5 && size < 40, `${size}`)
  assert.equal(residentMb(undefined), undefined)
  assert.equal(residentMb(2 ** 22 + 1), undefined)
})

/** Its memory grows by 55 MiB, of which it touches each byte. */
const TOUCHES = preview1(
  [],
  `(drop (memory.grow (i32.const 880)))
   (memory.fill (i32.const 65536) (i32.const 1) (i32.const 57671680))`,
)

test('FN-4 forty guests of 55 MiB one after the other take no more than a runner books', async (t) => {
  const bytes = await prepared(TOUCHES)
  const runners = pool(t, { memMbMax: 4_000, artifact: async () => bytes })
  const bound = { ...one, memMb: 64 }
  let most = 0
  for (let i = 0; i < 40; i++)
    await runners.with(bound, async (runner) => {
      const { outcome } = await runOnce(runner)
      assert.equal(outcome.kind, 'exited')
      most = Math.max(most, residentMb(runner.pid) ?? Infinity)
    })
  assert.ok(most < bound.memMb + RUNNER_MEM_MB, `${most} MiB`)
})

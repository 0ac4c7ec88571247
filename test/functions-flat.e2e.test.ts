// Thousands of invocations through the whole platform: memory and descriptors stay where they were, no child is left.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { descendants, isGone, openFiles } from '#sim/bench/process-tree.ts'
import { describe, startPlatform, type Invoked } from '#test/platform.ts'

const SOAK = process.env['CLUTCH_SOAK'] !== undefined
const AT_ONCE = 8
/** Compilers and pools have settled by then. */
const WARM_UP = 1_200
/** The least, and as many as fit into the time; all of them under soak. */
const LEAST = SOAK ? 10_000 : 2_000
const MOST = 10_000
const TIME_MS = 20_000
/** Between two looks. */
const A_STEP = 1_000
/**
 * A process may be this much larger at the end: some 3 KiB an invocation are rubbish that V8 has no reason to collect
 * yet (a collection brings it back to where it was). A leak of 8 KiB an invocation shows.
 */
const GROWTH_MIB_MAX = 64
/** Connections come and go; one a hundred invocations would show. A child more has pipes of its own. */
const DESCRIPTORS_MORE_MAX = 15

const platform = await startPlatform({ after })
const agent = await platform.startNode('node-f1')
await platform.deploy('words', 'word-count/word-count.wasm', { cpuMillis: 250 })
await platform.deploy('words-core', 'word-count/word-count.core.wasm', { cpuMillis: 250 })
await platform.deploy('probe', 'probe/probe.core.wasm', { cpuMillis: 250 })

/** Each with what it must answer: good ends and bad ones, both forms, small output and large. */
const KINDS: readonly {
  ask: () => Promise<Invoked>
  answers: (ran: Invoked) => unknown[]
  want: unknown[]
}[] = [
  ...['words', 'words-core'].map((name) => ({
    ask: () => platform.invoke(name, { args: ['-w'], stdin: 'word '.repeat(50) }),
    answers: (ran: Invoked) => [ran.ok, ran.stdout],
    want: [true, '50\n'],
  })),
  {
    ask: () => platform.probe('probe', ['exit', '3']),
    answers: (ran) => [ran.reason, ran.exitCode],
    want: ['exit', 3],
  },
  {
    ask: () => platform.probe('probe', ['trap', 'divide']),
    answers: (ran) => [ran.reason, ran.exitCode],
    want: ['trap', null],
  },
  {
    ask: () => platform.probe('probe', ['stdout', '20000']),
    answers: (ran) => [ran.ok, ran.stdout.length],
    want: [true, 20_000],
  },
]

/** Invocations, `AT_ONCE` at a time, while `more` says so; every answer is checked. How many there were. */
async function load(more: (done: number) => boolean): Promise<number> {
  let begun = 0
  const worker = async (): Promise<void> => {
    while (more(begun)) {
      const kind = KINDS[begun++ % KINDS.length]!
      const ran = await kind.ask()
      assert.deepEqual(kind.answers(ran), kind.want, JSON.stringify(ran).slice(0, 500))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return begun
}

/** Resident memory of a process and, of the agent, of the guests' processes below it. */
function rssMib(pid: number): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(text)?.[1] ?? Number.NaN) / 1024
}

type Measured = {
  engine: number
  agent: number
  /** Of the largest. */
  guests: number
  children: number
  descriptors: number[]
}

function measured(): Measured {
  const programs = [platform.engine.pid, agent.program.pid]
  const guests = agent.children().map((one) => rssMib(one.pid))
  return {
    engine: rssMib(platform.engine.pid),
    agent: rssMib(agent.program.pid),
    guests: Math.max(0, ...guests),
    children: guests.length,
    descriptors: programs.map((pid) => openFiles(pid).length),
  }
}

test(
  'FN-8 thousands of invocations leave memory and descriptors where they were',
  { timeout: SOAK ? 600_000 : 120_000 },
  async (t) => {
    await load((begun) => begun < WARM_UP)
    const before = measured()
    const began = systemClock.monotonic()
    const enough = (done: number): boolean =>
      done >= MOST || (!SOAK && done >= LEAST && systemClock.monotonic() - began > TIME_MS)
    const course = [before]
    let count = 0
    while (!enough(count)) {
      const earlier = count
      count += await load((begun) => begun < A_STEP && !enough(earlier + begun))
      course.push(measured())
    }
    const later = course.at(-1) ?? before
    const perS = Math.round((count * 1000) / (systemClock.monotonic() - began))
    t.diagnostic(`${count} invocations, ${perS} a second`)
    for (const one of course)
      t.diagnostic(
        `engine ${one.engine.toFixed(1)}, agent ${one.agent.toFixed(1)}, largest of ${one.children} guests ${one.guests.toFixed(1)} MiB, descriptors ${one.descriptors.join(' and ')}`,
      )
    assert.ok(count >= LEAST)
    for (const what of ['engine', 'agent', 'guests'] as const)
      assert.ok(
        later[what] - before[what] < GROWTH_MIB_MAX,
        `${what}: ${before[what].toFixed(1)} → ${later[what].toFixed(1)} MiB over ${count} invocations`,
      )
    const pipes = 3 * Math.max(0, later.children - before.children)
    for (const [i, descriptors] of later.descriptors.entries())
      assert.ok(
        descriptors - (before.descriptors[i] ?? 0) < DESCRIPTORS_MORE_MAX + pipes,
        `descriptors: ${before.descriptors.join()} → ${later.descriptors.join()}`,
      )
  },
)

test('FN-4 an agent that stops leaves no child', async () => {
  const children = descendants(agent.program.pid)
  assert.ok(children.length > 0)
  assert.equal((await agent.program.stop()).code, 0)
  await until(
    () => `they are gone:\n${describe(children.filter((one) => !isGone(one)))}`,
    () => children.every(isGone) || undefined,
    2_000,
  )
  await platform.assertConsistent()
})

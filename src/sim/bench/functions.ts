// Functions through a whole platform of real processes: client → API → placement → session → child → back, beside the
// same invocation inside the node alone, and beside plain node:http and workerd on the same work (FN-8). The function is
// the C word count; cpuMillis 250. What shares the machine in time is measured in turns: a load that comes and goes hits
// all of them.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { systemClock } from '#lib/clock.ts'
import { prepare } from '#wasm/prepare.ts'
import { openJail } from '#wasm/jail/open-jail.ts'
import { Runner } from '#wasm/runner.ts'
import { startNodeHttp, startWorkerd, type Peer } from '#sim/bench/function-peers.ts'
import {
  CPU_MILLIS,
  startPlatform,
  type CpuMs,
  type Platform,
} from '#sim/bench/functions-platform.ts'
import type { Target } from '#sim/bench/load-client.ts'
import { LoadClient } from '#sim/bench/load.ts'
import { percentile, round, type Row } from '#sim/bench/row.ts'

const EXAMPLES = join(import.meta.dirname, '../../../examples/word-count')
const COMPONENT = join(EXAMPLES, 'word-count.wasm')
const PREVIEW1 = join(EXAMPLES, 'word-count.core.wasm')
const STDIN = 'the quick brown fox jumps over the lazy dog\n'.repeat(20)
const COUNTED = /^\s*20\s+180\s+880\s*$/
/** The same, as JSON says it. */
const ANSWER = String.raw`"stdout":" *20 +180 +880\\n"`
const MEM_MB = 64

const TURN = 50
const TURNS = 8
/** Engine, agent and child are as fast as they get after about 700 (measured); an engine that works is there in seconds. */
const WARM_UP = 1_000
const COLD = 20
const FIRST = 10
/** As many as the node has slots of 250 on one core, half of them waiting on the other side. */
const CONCURRENT = 8
const LOAD_MS = 2_000
/** The first turn, not counted: every child has run some hundred times, as one that works has in a minute. */
const LOAD_WARM_UP_MS = 8_000
const LOAD_ROUNDS = 3

type Bench = { platform: Platform; client: LoadClient; peers: readonly Peer[] }

export async function benchFunctions(): Promise<Row[]> {
  const ends: (() => Promise<void>)[] = []
  try {
    const client = new LoadClient()
    ends.push(() => client.end())
    const platform = await startPlatform()
    ends.push(() => platform.end())
    await platform.deploy('words', COMPONENT, MEM_MB)
    await platform.deploy('words-preview1', PREVIEW1, MEM_MB)
    const rows = await latencies({ platform, client, peers: [] })
    const work = { stdin: STDIN, answer: ANSWER }
    const peers: Peer[] = []
    for (const starting of [startNodeHttp, startWorkerd]) {
      const peer = await starting(work)
      if (!peer) continue
      ends.push(() => peer.end())
      peers.push(peer)
    }
    return [...rows, ...(await throughput({ platform, client, peers }))]
  } finally {
    for (const end of ends.toReversed()) await end()
  }
}

const targetOf = (platform: Platform, name: string): Target => ({
  ...platform.invocation(name, STDIN),
  answer: ANSWER,
})

async function latencies(bench: Bench): Promise<Row[]> {
  return [...(await warm(bench)), await cold(bench), await first(bench)]
}

async function warm({ platform, client }: Bench): Promise<Row[]> {
  const local = await localRunner()
  const target = targetOf(platform, 'words')
  const ours: number[] = []
  const inNode: number[] = []
  try {
    await client.timed(target, WARM_UP)
    for (let at = 0; at < WARM_UP; at++) await local.invoke()
    for (let turn = 0; turn < TURNS; turn++) {
      ours.push(...(await client.timed(target, TURN)))
      for (let at = 0; at < TURN; at++) {
        const began = systemClock.monotonic()
        await local.invoke()
        inNode.push(systemClock.monotonic() - began)
      }
    }
  } finally {
    await local.close()
  }
  const [p50, nodeP50] = [percentile(ours, 0.5), percentile(inNode, 0.5)]
  const ratio = round(p50 / nodeP50)
  const peer = 'the same inside the node'
  return [
    { name: 'warm_invoke_p50_ms', value: round(p50), unit: 'ms', peer, ratio },
    { name: 'warm_invoke_p99_ms', value: round(percentile(ours, 0.99)), unit: 'ms' },
    { name: 'warm_invoke_node_p50_ms', value: round(nodeP50), unit: 'ms' },
    { name: 'warm_invoke_vs_node_local', value: ratio, unit: '×', peer, ratio },
  ]
}

/** The artifact is on the node, its child was killed, the blank one is ready. */
async function cold({ platform, client }: Bench): Promise<Row> {
  const samples: number[] = []
  for (let at = 0; at < COLD; at++) {
    await platform.killGuests()
    samples.push(...(await client.timed(targetOf(platform, 'words'), 1)))
  }
  return { name: 'cold_invoke_p50_ms', value: round(percentile(samples, 0.5)), unit: 'ms' }
}

/** The first ever on the node: a slot is booked, the artifact travels, a child is bound. */
async function first({ platform, client }: Bench): Promise<Row> {
  const samples: number[] = []
  for (let at = 0; at < FIRST; at++) {
    // Another memory cap is another artifact.
    await platform.deploy(`first-${at}`, COMPONENT, MEM_MB + 1 + at)
    await platform.settle()
    samples.push(...(await client.timed(targetOf(platform, `first-${at}`), 1)))
  }
  return { name: 'first_invoke_p50_ms', value: round(percentile(samples, 0.5)), unit: 'ms' }
}

type Contender = { target: Target; done: number; tookMs: number; ms: number[]; cpu: CpuMs }

/** Ours as a component and as preview 1, and each peer, in turns; the first turn of each is not counted. */
async function throughput({ platform, client, peers }: Bench): Promise<Row[]> {
  const contender = (target: Target): Contender => {
    const cpu = { engine: 0, postgres: 0, agent: 0, guests: 0 }
    return { target, done: 0, tookMs: 0, ms: [], cpu }
  }
  const component = contender(targetOf(platform, 'words'))
  const preview1 = contender(targetOf(platform, 'words-preview1'))
  const beside = peers.map((peer) => ({ peer, figures: contender(peer.target) }))
  const all = [component, preview1, ...beside.map(({ figures }) => figures)]
  for (let turn = 0; turn <= LOAD_ROUNDS; turn++)
    for (const one of all) {
      const before = platform.cpuMs()
      const forMs = turn === 0 ? LOAD_WARM_UP_MS : LOAD_MS
      const ran = await client.load(one.target, { callers: CONCURRENT, forMs })
      if (turn === 0) continue
      const after = platform.cpuMs()
      for (const part of PARTS) one.cpu[part] += after[part] - before[part]
      one.done += ran.done
      one.tookMs += ran.tookMs
      one.ms.push(...ran.ms)
    }
  return [
    ...oursRows(component, ''),
    ...oursRows(preview1, '_preview1'),
    ...beside.flatMap(({ peer, figures }) => peerRows(peer, figures, { component, preview1 })),
  ]
}

const PARTS = ['engine', 'postgres', 'agent', 'guests'] as const

const perSecond = ({ done, tookMs }: Contender): number => (done / tookMs) * 1_000

function oursRows(figures: Contender, suffix: string): Row[] {
  const us = (ms: number): number => round((ms / figures.done) * 1_000)
  const total = PARTS.reduce((sum, part) => sum + figures.cpu[part], 0)
  return [
    { name: `invokes_per_s${suffix}`, value: round(perSecond(figures)), unit: '1/s' },
    { name: `loaded_p50_ms${suffix}`, value: round(percentile(figures.ms, 0.5)), unit: 'ms' },
    { name: `cpu_us_per_invoke${suffix}`, value: us(total), unit: 'µs' },
    ...PARTS.map((part) => ({
      name: `cpu_us_${part}${suffix}`,
      value: us(figures.cpu[part]),
      unit: 'µs',
    })),
  ]
}

function peerRows(
  { name, title }: Peer,
  figures: Contender,
  ours: { component: Contender; preview1: Contender },
): Row[] {
  const theirs = perSecond(figures)
  const peer = `${title}'s ${round(theirs)} 1/s`
  const versus = name === 'node_http' ? 'vs_node_http' : `invokes_per_s_vs_${name}`
  const row = (suffix: string, mine: Contender): Row => {
    const ratio = round(perSecond(mine) / theirs)
    return { name: `${versus}${suffix}`, value: ratio, unit: '×', peer, ratio }
  }
  return [row('', ours.component), row('_preview1', ours.preview1)]
}

/** One runner in this process, as the agent holds it. */
async function localRunner(): Promise<{ invoke(): Promise<void>; close(): Promise<void> }> {
  const prepared = await prepare(await readFile(COMPONENT), { memMb: MEM_MB })
  if (!prepared.ok) throw new Error(`word-count does not prepare: ${prepared.message}`)
  const { artifact } = prepared
  const [clock, node] = [systemClock, process.execPath]
  // As the agent holds its own: the filter of system calls and the cgroup cost what they cost there.
  const jail = await openJail({ clock, node })
  const runner = await Runner.start({
    artifact,
    memMb: MEM_MB,
    cpuMillis: CPU_MILLIS,
    node,
    clock,
    jail,
  })
  return {
    async invoke() {
      const out: Uint8Array[] = []
      await runner.invoke({
        args: [],
        env: {},
        stdin: Buffer.from(STDIN),
        timeoutMs: 30_000,
        onStdout: (chunk) => void out.push(chunk),
        onStderr: () => undefined,
      })
      const stdout = Buffer.concat(out).toString()
      if (!COUNTED.test(stdout)) throw new Error(`word-count said '${stdout}' inside the node`)
    },
    async close() {
      await runner.close()
      jail.close()
    },
  }
}

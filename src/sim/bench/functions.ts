// Functions through a whole platform of real processes: client → API → placement → session → child → back, beside the
// same invocation inside the node alone. The function is the C word count; cpuMillis 250.
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { prepare } from '#wasm/prepare.ts'
import { Runner } from '#wasm/runner.ts'
import { cpuMs, descendants, isGone } from '#sim/bench/process-tree.ts'
import { freePort, Program } from '#sim/bench/program.ts'
import { percentile, round, type Row } from '#sim/bench/row.ts'

const EXAMPLES = join(import.meta.dirname, '../../../examples/word-count')
const COMPONENT = join(EXAMPLES, 'word-count.wasm')
const PREVIEW1 = join(EXAMPLES, 'word-count.core.wasm')
const NODE_ID = 'bench-node'
const STDIN = 'the quick brown fox jumps over the lazy dog\n'.repeat(20)
const COUNTED = /^\s*20\s+180\s+880\s*$/
const MEM_MB = 64

/** Measured in turns of this many, ours and the peer's: what else the machine does hits both. */
const TURN = 50
const TURNS = 8
const WARM_UP = 100
const COLD = 20
const FIRST = 10
/** As many as the node has slots of 250 on one core, half of them waiting on the other side. */
const CONCURRENT = 8
const THROUGHPUT_MS = 5_000

const Invoked = z.object({ ok: z.boolean(), stdout: z.string(), error: z.string().optional() })
const Node = z.object({ node: z.object({ schedulable: z.boolean() }) })

export async function benchFunctions(): Promise<Row[]> {
  const bench = await start()
  try {
    await bench.deploy('words', COMPONENT)
    await bench.deploy('words-preview1', PREVIEW1)
    return [
      ...(await warm(bench)),
      await cold(bench),
      await first(bench),
      ...(await throughput(bench, 'words', '')),
      ...(await throughput(bench, 'words-preview1', '_preview1')),
    ]
  } finally {
    await bench.end()
  }
}

async function warm(bench: Bench): Promise<Row[]> {
  const local = await localRunner()
  const ours: number[] = []
  const inNode: number[] = []
  try {
    for (let at = 0; at < WARM_UP; at++) {
      await bench.invoke('words')
      await local.invoke()
    }
    for (let turn = 0; turn < TURNS; turn++) {
      for (let at = 0; at < TURN; at++) ours.push(await timed(() => bench.invoke('words')))
      for (let at = 0; at < TURN; at++) inNode.push(await timed(() => local.invoke()))
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
async function cold(bench: Bench): Promise<Row> {
  const samples: number[] = []
  for (let at = 0; at < COLD; at++) {
    await bench.killGuests()
    samples.push(await timed(() => bench.invoke('words')))
  }
  return { name: 'cold_invoke_p50_ms', value: round(percentile(samples, 0.5)), unit: 'ms' }
}

/** The first ever on the node: a slot is booked, the artifact travels, a child is bound. */
async function first(bench: Bench): Promise<Row> {
  const samples: number[] = []
  for (let at = 0; at < FIRST; at++) {
    // Another memory cap is another artifact.
    await bench.deploy(`first-${at}`, COMPONENT, MEM_MB + 1 + at)
    await bench.settle()
    samples.push(await timed(() => bench.invoke(`first-${at}`)))
  }
  return { name: 'first_invoke_p50_ms', value: round(percentile(samples, 0.5)), unit: 'ms' }
}

async function throughput(bench: Bench, name: string, suffix: string): Promise<Row[]> {
  await Promise.all(Array.from({ length: CONCURRENT }, () => bench.invoke(name)))
  const deadline = systemClock.monotonic() + THROUGHPUT_MS
  const began = systemClock.monotonic()
  const cpu = bench.cpuMs()
  let done = 0
  const client = async (): Promise<void> => {
    while (systemClock.monotonic() < deadline) {
      await bench.invoke(name)
      done++
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT }, client))
  const seconds = (systemClock.monotonic() - began) / 1000
  const used = bench.cpuMs() - cpu
  return [
    { name: `invokes_per_s${suffix}`, value: round(done / seconds), unit: '1/s' },
    { name: `cpu_us_per_invoke${suffix}`, value: round((used / done) * 1000), unit: 'µs' },
  ]
}

async function timed(run: () => Promise<void>): Promise<number> {
  const began = systemClock.monotonic()
  await run()
  return systemClock.monotonic() - began
}

/** One runner in this process, as the agent holds it. */
async function localRunner(): Promise<{ invoke(): Promise<void>; close(): Promise<void> }> {
  const prepared = await prepare(await readFile(COMPONENT), { memMb: MEM_MB })
  if (!prepared.ok) throw new Error(`word-count does not prepare: ${prepared.message}`)
  const { artifact } = prepared
  const clock = systemClock
  const runner = await Runner.start({ artifact, memMb: MEM_MB, node: process.execPath, clock })
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
      check(Buffer.concat(out).toString())
    },
    close: () => runner.close(),
  }
}

function check(stdout: string, why = ''): void {
  if (!COUNTED.test(stdout)) throw new Error(`word-count said '${stdout}' ${why}`)
}

type Bench = {
  deploy(name: string, file: string, memMb?: number): Promise<void>
  invoke(name: string): Promise<void>
  /** Ends every child that holds a function; resolves when a blank one is ready. */
  killGuests(): Promise<void>
  /** Long enough for the agent to have a blank child again. */
  settle(): Promise<void>
  /** CPU time of engine, agent, guests and Postgres until now. */
  cpuMs(): number
  end(): Promise<void>
}

async function start(): Promise<Bench> {
  const home = mkdtempSync(join(tmpdir(), 'clutch-bench-'))
  // Postgres runs as a user of its own when we are root.
  chmodSync(home, 0o711)
  const ends: (() => Promise<unknown>)[] = [
    async () => rmSync(home, { recursive: true, force: true }),
  ]
  const end = async (): Promise<void> => {
    for (const one of ends.toReversed()) await one()
  }
  try {
    return { ...(await platform(home, ends)), end }
  } catch (error) {
    await end()
    throw error
  }
}

async function platform(
  home: string,
  ends: (() => Promise<unknown>)[],
): Promise<Omit<Bench, 'end'>> {
  const [http, sessions] = [await freePort(), await freePort()]
  const limits = ['--deploys-per-minute', '1000', '--invokes-per-minute', '10000000']
  const ports = ['--http-port', String(http), '--session-port', String(sessions)]
  const engine = new Program({
    name: 'clutch-engine',
    args: ['--home', home, '--dev', '--log-level', 'warn', ...ports, ...limits],
  })
  ends.push(() => engine.stop())
  const url = `http://127.0.0.1:${http}`
  await until(
    () => `the engine is ready: ${engine.tail()}`,
    async () => (await fetch(`${url}/ready`)).ok,
    60_000,
  )
  const key = readFileSync(join(home, 'secrets/dev-key'), 'utf8').trim()
  const ask = createAsk(url, key)
  const agent = await startAgent(home, sessions, ask)
  ends.push(() => agent.stop())
  return {
    async deploy(name, file, memMb = MEM_MB) {
      const component = readFileSync(file).toString('base64')
      await ask('POST', '/v1/functions', { name, component, cpuMillis: 250, memMb })
    },
    async invoke(name) {
      const answer = await ask('POST', `/v1/functions/${name}/invoke`, { stdin: STDIN })
      const ran = Invoked.parse(answer)
      check(ran.stdout, ran.error)
    },
    async killGuests() {
      const children = descendants(agent.pid).filter((one) => one.command.includes('--permission'))
      // The youngest is the blank one: it is started when another was bound.
      const guests = children
        .toSorted((a, b) => Number(a.startedAt) - Number(b.startedAt))
        .slice(0, -1)
      for (const { pid } of guests) process.kill(pid, 'SIGKILL')
      await until('the guests are gone', () => guests.every(isGone))
      await systemClock.sleep(SETTLE_MS)
    },
    settle: () => systemClock.sleep(SETTLE_MS),
    cpuMs: () => [engine.pid, agent.pid].reduce((sum, pid) => sum + cpuMs(pid), 0),
  }
}

/** A blank child starts in 50 to 150 ms. */
const SETTLE_MS = 500

type Ask = (method: string, path: string, body?: object) => Promise<unknown>

function createAsk(url: string, key: string): Ask {
  return async (method, path, body) => {
    const query = method === 'GET' ? '?orgId=platform' : ''
    const response = await fetch(`${url}${path}${query}`, {
      method,
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify({ orgId: 'platform', ...body }) }),
    })
    const answer: unknown = await response.json()
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`)
    return answer
  }
}

async function startAgent(home: string, port: number, ask: Ask): Promise<Program> {
  const enrolled = await ask('POST', '/v1/nodes', { nodeId: NODE_ID, trustTier: 'secure' })
  const { token } = z.object({ token: z.string() }).parse(enrolled)
  const tokenFile = join(home, 'node-token')
  writeFileSync(tokenFile, token, { mode: 0o600 })
  const args = ['--server', `127.0.0.1:${port}`, '--node', NODE_ID, '--token-file', tokenFile]
  args.push('--runtimes', 'wasm', '--data-dir', join(home, 'node'), '--log-level', 'warn')
  const agent = new Program({ name: 'clutch-noded', args })
  await until(
    () => `the node is schedulable: ${agent.tail()}`,
    async () => Node.parse(await ask('GET', `/v1/nodes/${NODE_ID}`)).node.schedulable,
    30_000,
  )
  return agent
}

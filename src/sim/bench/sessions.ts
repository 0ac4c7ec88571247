// Sessions: how long a node takes to be welcomed, how far a stream is, what a session costs the engine (control alone).
import { fork, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { percentile, round, type Row } from '#sim/bench/row.ts'
import { startSimNodes, stopSimNodes, type SimNode } from '#sim/node.ts'

/** What a session costs is read off this many. */
const SESSIONS = 1_000
/** Dialled one after the other, before the fleet comes. */
const ALONE = 50
/** The first of the fleet, who make the engine grow to its working size: a session's cost is read off those after them. */
const FIRST = 200
const ROUND_TRIPS = 200
const CONNECTED_WITHIN_MS = 120_000
const POLL_MS = 20
/** A fleet that has just come still frees what its handshakes needed. */
const SETTLE_MS = 3_000
const FLAGS = ['--disable-warning=ExperimentalWarning']

type Token = { nodeId: string; token: string }

export async function benchSessions(): Promise<Row[]> {
  const engine = new EngineSide()
  const fleets: ChildProcess[] = []
  try {
    const { port, nodes } = (await engine.said()) as { port: number; nodes: Token[] }
    const alone = await dialAlone(engine, port, nodes.slice(0, ALONE))
    fleets.push(startFleet(port, nodes.slice(ALONE, ALONE + FIRST)))
    const before = await engine.at(FIRST)
    const began = systemClock.monotonic()
    fleets.push(startFleet(port, nodes.slice(ALONE + FIRST)))
    const rest = nodes.length - ALONE - FIRST
    await engine.until(FIRST + rest)
    const perSecond = (rest / (systemClock.monotonic() - began)) * 1_000
    const after = await engine.at(FIRST + rest)
    const { cpuMs } = (await engine.ask('restart')) as { cpuMs: number }
    const restarted = systemClock.monotonic()
    await engine.until(FIRST + rest)
    const reconnects = ((FIRST + rest) / (systemClock.monotonic() - restarted)) * 1_000
    const spentMs = (await engine.cpuMs()) - cpuMs
    return [
      { name: 'connect_ms', value: alone.connectMs, unit: 'ms p50' },
      { name: 'round_trip_ms', value: alone.roundTripMs, unit: 'ms p50' },
      { name: 'registers_per_s', value: round(perSecond), unit: '/s' },
      { name: 'reconnects_per_s', value: round(reconnects), unit: '/s' },
      { name: 'reconnect_cpu_ms', value: round(spentMs / (FIRST + rest)), unit: 'ms' },
      { name: 'register_cpu_ms', value: round((after.cpuMs - before.cpuMs) / rest), unit: 'ms' },
      { name: 'session_kb', value: round((after.bytes - before.bytes) / rest / 1024), unit: 'KB' },
    ]
  } finally {
    await Promise.all(fleets.map(endFleet))
    await engine.end()
  }
}

/** From the dial to the welcome, one node at a time; then streams to the first of them. */
async function dialAlone(
  engine: EngineSide,
  port: number,
  specs: readonly Token[],
): Promise<{ connectMs: number; roundTripMs: number }> {
  const nodes: SimNode[] = []
  const samples: number[] = []
  for (const spec of specs) {
    const began = systemClock.monotonic()
    nodes.push(
      ...(await startSimNodes([spec], {
        server: { host: '127.0.0.1', port },
        clock: systemClock,
        random: systemRandom,
      })),
    )
    samples.push(systemClock.monotonic() - began)
  }
  const trips: number[] = []
  for (let times = 0; times < ROUND_TRIPS; times++)
    trips.push(((await engine.ask('round-trip')) as { ms: number }).ms)
  await stopSimNodes(nodes)
  await engine.until(0)
  return {
    connectMs: round(percentile(samples, 0.5)),
    roundTripMs: round(percentile(trips, 0.5)),
  }
}

function startFleet(port: number, tokens: readonly Token[]): ChildProcess {
  const sim = join(import.meta.dirname, '../../bin/sim.ts')
  const args = [...FLAGS, sim, '--server', `127.0.0.1:${port}`, '--tokens', '-']
  const fleet = spawn(process.execPath, args, { stdio: ['pipe', 'ignore', 'inherit'] })
  fleet.stdin?.end(JSON.stringify(tokens))
  return fleet
}

async function endFleet(fleet: ChildProcess): Promise<void> {
  if (fleet.exitCode !== null || fleet.signalCode !== null) return
  const exited = once(fleet, 'exit')
  fleet.kill('SIGKILL')
  await exited
}

/** The process of sessions-gateway.ts. */
class EngineSide {
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown>

  constructor() {
    const script = join(import.meta.dirname, 'sessions-gateway.ts')
    this.#child = fork(script, [String(SESSIONS)], { execArgv: ['--expose-gc', ...FLAGS] })
    this.#exited = once(this.#child, 'exit')
  }

  async said(): Promise<unknown> {
    const gone = this.#exited.then(() => {
      throw new Error('the engine of the sessions bench ended')
    })
    const [message] = (await Promise.race([once(this.#child, 'message'), gone])) as unknown[]
    return message
  }

  ask(ask: string): Promise<unknown> {
    const answer = this.said()
    this.#child.send({ ask })
    return answer
  }

  async until(wanted: number): Promise<void> {
    const deadline = systemClock.monotonic() + CONNECTED_WITHIN_MS
    for (;;) {
      const { sessions } = (await this.ask('sessions')) as { sessions: number }
      if (sessions === wanted) return
      if (systemClock.monotonic() > deadline)
        throw new Error(`${sessions} sessions, ${wanted} were to be`)
      await systemClock.sleep(POLL_MS)
    }
  }

  async cpuMs(): Promise<number> {
    return ((await this.ask('sessions')) as { cpuMs: number }).cpuMs
  }

  /** Its resident bytes and its CPU time so far, once this many sessions are there and have settled. */
  async at(sessions: number): Promise<{ bytes: number; cpuMs: number }> {
    await this.until(sessions)
    await systemClock.sleep(SETTLE_MS)
    return (await this.ask('memory')) as { bytes: number; cpuMs: number }
  }

  async end(): Promise<void> {
    if (this.#child.connected) await this.ask('end').catch(() => undefined)
    await this.#exited
  }
}

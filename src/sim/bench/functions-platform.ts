// The platform that functions are measured on: engine, its Postgres and one agent, each a real process.
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { BLANKS_MAX } from '#agent/drivers/wasm/blank-runners.ts'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { post } from '#sim/bench/load.ts'
import { cpuMs, cpuMsBelow, descendants, isGone } from '#sim/bench/process-tree.ts'
import { freePort, Program } from '#sim/bench/program.ts'

/** Of the functions of the bench (FN-8). */
export const CPU_MILLIS = 250

const NODE_ID = 'bench-node'
/** A blank child starts in 50 to 150 ms. */
const SETTLE_MS = 500

export type CpuMs = { engine: number; postgres: number; agent: number; guests: number }

export type Platform = {
  deploy(name: string, file: string, memMb: number): Promise<void>
  /** Where and what to send for one invocation. */
  invocation(name: string, stdin: string): { port: number; request: string }
  /** Ends every child that holds a function; resolves when a blank one is ready. */
  killGuests(): Promise<void>
  /** Long enough for the agent to have a blank child again. */
  settle(): Promise<void>
  /** CPU time until now. */
  cpuMs(): CpuMs
  end(): Promise<void>
}

export async function startPlatform(): Promise<Platform> {
  const home = mkdtempSync(join(tmpdir(), 'clutch-bench-'))
  // Postgres runs as a user of its own when we are root.
  chmodSync(home, 0o711)
  const ends: (() => unknown)[] = [() => rmSync(home, { recursive: true, force: true })]
  const end = async (): Promise<void> => {
    for (const one of ends.toReversed()) await one()
  }
  try {
    return { ...(await start(home, ends)), end }
  } catch (error) {
    await end()
    throw error
  }
}

async function start(home: string, ends: (() => unknown)[]): Promise<Omit<Platform, 'end'>> {
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
    async deploy(name, file, memMb) {
      const component = readFileSync(file).toString('base64')
      await ask('POST', '/v1/functions', { name, component, cpuMillis: CPU_MILLIS, memMb })
    },
    invocation(name, stdin) {
      const body = JSON.stringify({ orgId: 'platform', stdin })
      return {
        port: http,
        request: post(`/v1/functions/${name}/invoke`, { 'x-api-key': key }, body),
      }
    },
    killGuests: () => killGuests(agent.pid),
    settle: () => systemClock.sleep(SETTLE_MS),
    cpuMs: () => ({
      engine: cpuMs(engine.pid).own,
      postgres: cpuMsBelow(engine.pid),
      agent: cpuMs(agent.pid).own,
      guests: cpuMsBelow(agent.pid),
    }),
  }
}

async function killGuests(agent: number): Promise<void> {
  const children = descendants(agent).filter(
    (one) => one.parent === agent && one.command.includes('--permission'),
  )
  // The youngest are blank: each is started when another was bound.
  const guests = children
    .toSorted((a, b) => Number(a.startedAt) - Number(b.startedAt))
    .slice(0, -BLANKS_MAX)
  for (const { pid } of guests) process.kill(pid, 'SIGKILL')
  await until('the guests are gone', () => guests.every(isGone))
  await systemClock.sleep(SETTLE_MS)
}

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

const Node = z.object({ node: z.object({ schedulable: z.boolean() }) })

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

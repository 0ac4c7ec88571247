// The engine's side of the sessions bench, in a process of its own so that its memory is its own.
// Says { port, nodes } when it listens; answers { ask: 'sessions' } with their number, { ask: 'memory' } with its
// resident bytes and the CPU time it has had, { ask: 'round-trip' } with the time of one stream; listens anew at
// { ask: 'restart' }, and ends at { ask: 'end' }.
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import type { InvokeHeader } from '#protocol/messages.ts'
import { nodeWorld } from '#sim/node-world.ts'
import { testDatabase } from '#store/test-database.ts'

const NODES = Number(process.argv[2] ?? 1000)
const undo: (() => Promise<void>)[] = []
const scope = { after: (fn: () => Promise<void>): void => void undo.push(fn) }
const world = await nodeWorld(scope, await testDatabase(scope))
const nodes: { id: string; nodeId: string; token: string }[] = []
for (let at = 1; at <= NODES; at++) {
  const nodeId = `sim-${at}`
  nodes.push({ nodeId, ...(await world.enroll(nodeId)) })
}
let gateway = await world.gateway({ unregisteredPerAddress: NODES })
const HEADER: InvokeHeader = {
  t: 'invoke',
  id: 'inv_bench',
  functionId: 'fn_bench',
  artifact: { sha256: 'ab'.repeat(32), bytes: 1 },
  memMb: 64,
  cpuMillis: 100,
  timeoutMs: 1000,
  args: [],
  env: [],
}

/** From the header to the first word of the node. */
async function roundTrip(nodeRecordId: string): Promise<number> {
  const began = systemClock.monotonic()
  const stream = new FramedStream(await gateway.openStream(nodeRecordId, HEADER))
  await stream.read()
  const tookMs = systemClock.monotonic() - began
  await stream.write({ t: 'stdin-end' })
  while ((await stream.read()) !== undefined);
  return tookMs
}

/** Memory in bytes, garbage and what its collection freed left out as far as it can be. */
async function memory(): Promise<number> {
  for (let times = 0; times < 3; times++) {
    globalThis.gc?.()
    await systemClock.sleep(100)
  }
  return process.memoryUsage().rss
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

/** On the port of the one before, whose UDP socket goes with the last of its connections. */
async function again(port: number): Promise<typeof gateway> {
  for (;;)
    try {
      return await world.gateway({ unregisteredPerAddress: NODES, port })
    } catch (error) {
      if (!(error instanceof AppError) || error.details.reason !== 'LISTEN_FAILED') throw error
      await systemClock.sleep(10)
    }
}

async function answer(ask: unknown): Promise<unknown> {
  if (ask === 'sessions') return { sessions: gateway.sessions(), cpuMs: cpuMs() }
  if (ask === 'memory') return { bytes: await memory(), cpuMs: cpuMs() }
  if (ask === 'round-trip') return { ms: await roundTrip(nodes[0]?.id ?? '') }
  if (ask === 'restart') {
    await gateway.stop()
    gateway = await again(gateway.port)
    return { cpuMs: cpuMs() }
  }
  await gateway.stop()
  for (let fn = undo.shift(); fn; fn = undo.shift()) await fn()
  return {}
}

process.on('message', ({ ask }: { ask: string }) => {
  answer(ask)
    .then((said) => process.send?.(said))
    .then(() => ask === 'end' && process.disconnect?.())
    .catch((error) => {
      throw error
    })
})
process.send?.({ port: gateway.port, nodes: nodes.map(({ nodeId, token }) => ({ nodeId, token })) })

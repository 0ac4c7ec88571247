import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { Framed } from '#protocol/framed.ts'
import { createIdentity, type Identity } from '#protocol/identity.ts'
import type { Pipe } from '#protocol/pipe.ts'
import { dialTls } from '#protocol/tls-pipe.ts'
import { testDatabase } from '#store/test-database.ts'
import { startSimNodes, stopSimNodes } from '#sim/node.ts'
import { nodeWorld } from '#sim/node-world.ts'
import type { RunningGateway } from '#engine/gateway/start-gateway.ts'
import { until } from '#lib/until.ts'

const RUNS = 60
const TYPES = [
  'register',
  'join',
  'heartbeat',
  'observed',
  'command-result',
  'leaving',
  'hello',
  'x',
]

async function dialled(gateway: RunningGateway, identity: Identity): Promise<Pipe> {
  const outcome = await dialTls({
    host: '127.0.0.1',
    port: gateway.port,
    identity,
    clock: systemClock,
    timeoutMs: 5_000,
  })
  if (outcome.outcome !== 'connected') throw new Error(outcome.reason)
  return outcome.pipe
}

const register = (nodeId: string, token: string) => ({
  t: 'register',
  version: 1,
  agentVersion: 'hostile',
  nodeId,
  token,
  identityGeneration: 0,
  manifest: { cpuMillis: 1000, memMb: 1000, runtimes: [] },
  community: false,
  jailer: false,
  epochSeen: 0,
  generationSeen: 0,
})

/** Messages near what is right: known names, wrong values, numbers at the edge. */
const near = fc.record(
  {
    t: fc.constantFrom(...TYPES),
    version: fc.constantFrom(0, 1, 2, -1, Number.MAX_SAFE_INTEGER),
    ticket: fc.uint8Array({ maxLength: 64 }),
    token: fc.string({ maxLength: 300 }),
    nodeId: fc.oneof(fc.string(), fc.integer()),
    epoch: fc.oneof(fc.nat(), fc.constant(Number.MAX_SAFE_INTEGER)),
    seq: fc.oneof(fc.nat(), fc.constant(Number.MAX_SAFE_INTEGER), fc.string()),
    generation: fc.oneof(fc.nat(), fc.constant(Number.MAX_SAFE_INTEGER)),
    id: fc.string({ maxLength: 80 }),
    ok: fc.boolean(),
    output: fc.string(),
    certificate: fc.uint8Array({ maxLength: 600 }),
  },
  { requiredKeys: ['t'] },
)

test('AC-3 strangers who say anything as their first words change nothing', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ unregisteredPerAddress: 1_000 })
  const identity = await createIdentity(systemRandom)
  const stranger = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 2_000 }).map((bytes) => ({ bytes })),
    near.map((message) => ({ message })),
    fc.jsonValue().map((message) => ({ message })),
  )
  const seed = systemRandom.below(2 ** 31)
  t.diagnostic(`seed ${seed}`)
  await fc.assert(
    fc.asyncProperty(stranger, async (said) => {
      const pipe = await dialled(gateway, identity)
      if ('bytes' in said) pipe.write(Buffer.from(said.bytes))
      else new Framed(pipe).send(said.message)
      await systemClock.sleep(2)
      pipe.destroy()
    }),
    { seed, numRuns: RUNS },
  )
  assert.equal(gateway.sessions(), 0)
  const { token } = await world.enroll('node-a1')
  const nodes = await startSimNodes([{ nodeId: 'node-a1', token }], {
    server: { host: '127.0.0.1', port: gateway.port },
    clock: systemClock,
    random: systemRandom,
    transports: ['tls'],
  })
  assert.equal(nodes[0]?.connected, true)
  await stopSimNodes(nodes)
})

test('000-07 a node that lies in its session changes nobody else, and at most its own session', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const honest = await world.enroll('honest')
  const nodes = await startSimNodes([{ nodeId: 'honest', token: honest.token }], {
    server: { host: '127.0.0.1', port: gateway.port },
    clock: systemClock,
    random: systemRandom,
    transports: ['tls'],
  })
  t.after(() => stopSimNodes(nodes))
  const row = (id: string) =>
    world.db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirstOrThrow()
  await until('adopted', async () => (await row(honest.id)).observedGeneration === 1)
  const commands = await world.db.selectFrom('commands').select('id').execute()
  const before = await row(honest.id)
  const liar = await world.enroll('liar')
  const identity = await createIdentity(systemRandom)
  const seed = systemRandom.below(2 ** 31)
  t.diagnostic(`seed ${seed}`)
  const lie = fc.oneof(
    near,
    fc.constant({ t: 'command-result', id: commands[0]?.id, ok: false, output: 'mine now' }),
    fc.constant({ t: 'observed', generation: 1_000_000 }),
  )
  await fc.assert(
    fc.asyncProperty(lie, async (message) => {
      const framed = new Framed(await dialled(gateway, identity))
      await framed.next()
      framed.send(register('liar', liar.token))
      await framed.next()
      framed.send(message)
      await systemClock.sleep(2)
      framed.destroy()
    }),
    { seed, numRuns: RUNS },
  )
  assert.equal(nodes[0]?.connected, true)
  assert.equal(gateway.session(honest.id)?.epoch, 1)
  const after = await row(honest.id)
  assert.deepEqual({ ...after, lastSeenAt: null }, { ...before, lastSeenAt: null })
  const told = await row(liar.id)
  assert.ok(told.observedGeneration <= told.generation)
})

import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { mintToken } from '#protocol/enroll-token.ts'
import { Framed } from '#protocol/framed.ts'
import { createIdentity } from '#protocol/identity.ts'
import { dialTls } from '#protocol/tls-pipe.ts'
import { testDatabase } from '#store/test-database.ts'
import { SimNode, type SimNodeSpec } from '#sim/node.ts'
import { nodeWorld, type NodeWorld } from '#sim/node-world.ts'
import type { RunningGateway } from '#engine/gateway/start-gateway.ts'
import { until } from '#lib/until.ts'

async function start(
  t: TestContext,
  gateway: RunningGateway,
  spec: SimNodeSpec,
  identity = createIdentity(systemRandom),
): Promise<SimNode> {
  const node = new SimNode(spec, await identity, {
    server: { host: '127.0.0.1', port: gateway.port },
    clock: systemClock,
    random: systemRandom,
    transports: ['tls'],
  })
  t.after(() => node.stop())
  return node
}

const row = (world: NodeWorld, id: string) =>
  world.db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirstOrThrow()

const events = async (world: NodeWorld, id: string): Promise<string[]> => {
  const found = await world.db
    .selectFrom('events')
    .select('kind')
    .where('subject', '=', id)
    .orderBy('id')
    .execute()
  return found.map((event) => event.kind)
}

/** The reason that ended the node for good, and what it was told. */
async function refused(node: SimNode): Promise<{ reason: string; message: string }> {
  const ended = await node.done
  assert.equal(ended.kind, 'fatal')
  return ended.kind === 'fatal' ? ended : { reason: '', message: '' }
}

const observed = (world: NodeWorld, id: string): Promise<boolean> =>
  until('generation 1 observed', async () => (await row(world, id)).observedGeneration === 1)

test('ND-4 the first REGISTER binds the key, passes acceptance, reports generation 1 and is schedulable (000-27)', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const before = await row(world, id)
  assert.deepEqual([before.cpuMillis, before.memMb, before.runtimes], [null, null, null])
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await observed(world, id)
  const found = await row(world, id)
  assert.equal(found.provisionState, 'adopted')
  assert.equal(found.connectivity, 'connected')
  assert.deepEqual([found.cpuMillis, found.memMb, found.runtimes], [8000, 16384, ['wasm']])
  assert.equal(gateway.session(id)?.epoch, 1)
  assert.equal(node.welcome?.node.id, id)
  assert.deepEqual(await events(world, id), ['node.registered', 'node.adopted'])
  const commands = await world.db.selectFrom('commands').selectAll().execute()
  assert.deepEqual(
    commands.map(({ kind, state }) => [kind, state]),
    [['diag.wasm', 'succeeded']],
  )
})

test('ND-24 a failed check leaves the node failed, with its output, in maintenance', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const check = { ok: false, output: 'prlimit is missing' }
  await start(t, gateway, { nodeId: 'node-a1', token, check })
  await until('failed', async () => (await row(world, id)).provisionState === 'failed')
  const found = await row(world, id)
  assert.equal(found.failure, 'diag.wasm: prlimit is missing')
  assert.equal(found.maintenance, true)
  assert.equal(found.generation, 0)
  assert.deepEqual(await events(world, id), ['node.registered', 'node.acceptance-failed'])
})

test('ND-24 a node without wasm has no check to pass and is adopted as it is (000-24)', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  await start(t, gateway, { nodeId: 'node-a1', token, manifest: { runtimes: ['container'] } })
  await observed(world, id)
  assert.deepEqual((await row(world, id)).runtimes, ['container'])
})

test('FN-4 what the jail of a node lacks stands in its record, as its agent said it last', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  assert.equal((await row(world, id)).jailMissing, null)
  const lacking = ['own-uid', 'cgroup-cpu']
  const manifest = { jailMissing: lacking }
  const first = await start(t, gateway, { nodeId: 'node-a1', token, manifest }, identity)
  await observed(world, id)
  assert.deepEqual((await row(world, id)).jailMissing, lacking)
  await first.stop()
  await until('disconnected', async () => (await row(world, id)).connectivity === 'disconnected')
  await start(t, gateway, { nodeId: 'node-a1', token, manifest: { jailMissing: [] } }, identity)
  await until('said', async () => (await row(world, id)).jailMissing?.length === 0)
})

test('ND-4 000-11 a node comes back by its key: one record, the next epoch, no second acceptance', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  const first = await start(t, gateway, { nodeId: 'node-a1', token }, identity)
  await observed(world, id)
  await first.stop()
  await until('disconnected', async () => (await row(world, id)).connectivity === 'disconnected')
  // The same machine with the same token: the welcome was lost on the way, say.
  const second = await start(t, gateway, { nodeId: 'node-a1', token }, identity)
  await until('connected', () => second.connected)
  assert.equal(second.welcome?.epoch, 2)
  assert.equal((await world.db.selectFrom('nodes').select('id').execute()).length, 1)
  assert.equal((await world.db.selectFrom('commands').select('id').execute()).length, 1)
})

test('ND-4 000-23 another node id than the enrolled one is NODE_MISMATCH, naming both', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const { reason, message } = await refused(await start(t, gateway, { nodeId: 'node-b2', token }))
  assert.equal(reason, 'NODE_MISMATCH')
  assert.match(message, /node-b2.*node-a1/)
  assert.equal((await row(world, id)).connectivity, 'disconnected')
})

test('ND-4 another machine with the same token is KEY_MISMATCH, with an event; the first stays connected', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const first = await start(t, gateway, { nodeId: 'node-a1', token })
  await observed(world, id)
  const { reason, message } = await refused(await start(t, gateway, { nodeId: 'node-a1', token }))
  assert.equal(reason, 'KEY_MISMATCH')
  assert.match(message, /revoke-identity node-a1/)
  assert.ok((await events(world, id)).includes('node.key-mismatch'))
  assert.equal(first.connected, true)
  assert.equal(gateway.session(id)?.epoch, 1)
})

test('000-21 000-46 a revoked node is NODE_REVOKED; enrolled again under its name, the new token works and the old does not', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const old = await world.enroll('node-a1')
  await world.db
    .updateTable('nodes')
    .set({ revokedAt: new Date(world.clock.now()) })
    .where('id', '=', old.id)
    .execute()
  const again = await world.enroll('node-a1')
  const refusal = await refused(await start(t, gateway, { nodeId: 'node-a1', token: old.token }))
  assert.equal(refusal.reason, 'NODE_REVOKED')
  const node = await start(t, gateway, { nodeId: 'node-a1', token: again.token })
  await until('connected', () => node.connected)
  assert.equal(node.welcome?.node.id, again.id)
})

test('ND-5 after revokeIdentity the old token and key are IDENTITY_REVOKED; the new token registers', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const first = await start(t, gateway, { nodeId: 'node-a1', token })
  await observed(world, id)
  const newToken = await world.replaceIdentity(id)
  // Not told to stop, only cut off: it redials by its key and its certificate of generation 1.
  gateway.endSession(id, { reason: 'TEST', message: 'redial', retry: true })
  assert.equal((await refused(first)).reason, 'IDENTITY_REVOKED')
  const withOld = await start(t, gateway, { nodeId: 'node-a1', token })
  assert.equal((await refused(withOld)).reason, 'IDENTITY_REVOKED')
  const withNew = await start(t, gateway, { nodeId: 'node-a1', token: newToken })
  await until('connected', () => withNew.connected)
  assert.equal(withNew.welcome?.identityGeneration, 2)
})

test('ND-4 a token that no node has is TOKEN_UNKNOWN; one of another fleet never reaches the engine', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const root = world.keyring.fleetRoot.current.publicKeyHex
  const { token } = mintToken('node', root, systemRandom)
  const unknown = await refused(await start(t, gateway, { nodeId: 'node-a1', token }))
  assert.equal(unknown.reason, 'TOKEN_UNKNOWN')
  const other = mintToken('node', (await createIdentity(systemRandom)).publicKey, systemRandom)
  const foreign = await start(t, gateway, { nodeId: 'node-a1', token: other.token })
  assert.equal((await refused(foreign)).reason, 'STATEMENT_WRONG_ROOT')
})

test('ND-4 a data folder of another org is ORG_MISMATCH', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { token } = await world.enroll('node-a1')
  const answer = await say(gateway, { ...REGISTER, nodeId: 'node-a1', token, orgId: 'org_other' })
  assert.equal(answer['reason'], 'ORG_MISMATCH')
})

test('ND-4 a key that no node is bound to is KEY_UNKNOWN', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  assert.equal((await say(gateway, { ...REGISTER, nodeId: 'node-a1' }))['reason'], 'KEY_UNKNOWN')
})

test('ND-4 a protocol version that is too old is refused for good, one that is too new is told to wait', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { token } = await world.enroll('node-a1')
  const old = await say(gateway, { ...REGISTER, token, nodeId: 'node-a1', version: 0 })
  assert.deepEqual([old['reason'], old['retry']], ['VERSION', false])
  const young = await say(gateway, { ...REGISTER, token, nodeId: 'node-a1', version: 99 })
  assert.deepEqual([young['reason'], young['retry']], ['VERSION', true])
})

test('ND-4 a first message that is none is refused and writes nothing; a typo of a token is named as such', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  for (const message of [{ t: 'register' }, { t: 'nonsense' }, [], 7, { ...REGISTER, nodeId: 5 }])
    assert.equal((await say(gateway, message))['reason'], 'MESSAGE_MALFORMED')
  const typo = await say(gateway, { ...REGISTER, nodeId: 'node-a1', token: 'clt_n_oops' })
  assert.equal(typo['reason'], 'TOKEN_MALFORMED')
  assert.equal(gateway.sessions(), 0)
})

test('OP-12 an engine restored from an old database hands out no epoch or generation twice', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const seen = { ...REGISTER, nodeId: 'node-a1', token, epochSeen: 41, generationSeen: 7 }
  const welcome = await say(gateway, seen)
  assert.equal(welcome['t'], 'welcome')
  assert.equal(welcome['epoch'], 42)
  assert.equal((await row(world, id)).generation, 8)
  const absurd = await say(gateway, { ...seen, epochSeen: Number.MAX_SAFE_INTEGER })
  assert.equal(absurd['reason'], 'MESSAGE_MALFORMED')
})

test('ND-8 000-35 a pending tier takes effect at the next REGISTER, not before', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  const first = await start(t, gateway, { nodeId: 'node-a1', token }, identity)
  await observed(world, id)
  await world.db
    .updateTable('nodes')
    .set({ pendingTrustTier: 'community' })
    .where('id', '=', id)
    .execute()
  assert.equal((await row(world, id)).trustTier, 'secure')
  await first.stop()
  const second = await start(t, gateway, { nodeId: 'node-a1', token }, identity)
  await until('connected', () => second.connected)
  const found = await row(world, id)
  assert.deepEqual([found.trustTier, found.pendingTrustTier], ['community', null])
  assert.equal(second.welcome?.node.trustTier, 'community')
})

test('D39 000-25 community hardware without a jailer offers no machines, whoever says that it is community', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const manifest = { runtimes: ['wasm', 'microvm'] }
  const byFlag = await world.enroll('node-a1')
  const flagged = { nodeId: 'node-a1', token: byFlag.token, manifest, community: true }
  await start(t, gateway, flagged)
  const byRecord = await world.enroll('node-b2', { trustTier: 'community' })
  await start(t, gateway, { nodeId: 'node-b2', token: byRecord.token, manifest })
  await observed(world, byFlag.id)
  await observed(world, byRecord.id)
  assert.deepEqual((await row(world, byFlag.id)).runtimes, ['wasm'])
  assert.equal((await row(world, byFlag.id)).communityFlag, true)
  assert.deepEqual((await row(world, byRecord.id)).runtimes, ['wasm'])
})

test('000-13 D35 the region stays what the operator said, whatever a REGISTER claims', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  await world.db.updateTable('nodes').set({ region: 'blr1' }).where('id', '=', id).execute()
  const claim = { region: 'fra1', runtimes: ['wasm'] }
  await start(t, gateway, { nodeId: 'node-a1', token, manifest: claim })
  await observed(world, id)
  assert.equal((await row(world, id)).region, 'blr1')
})

test('000-18 the token stands in no row of the store', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  await start(t, gateway, { nodeId: 'node-a1', token })
  await observed(world, id)
  for (const table of ['nodes', 'nodeCredentials', 'nodeSessions', 'events', 'commands'] as const) {
    const rows = await world.db.selectFrom(table).selectAll().execute()
    assert.equal(JSON.stringify(rows).includes(token.slice(6, 40)), false, table)
  }
})

test('AC-3 an address holds at most N connections that have not registered; each goes after 5 s', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ unregisteredPerAddress: 3 })
  const idle = await Promise.all([1, 2, 3].map(() => connect(gateway)))
  for (const framed of idle) assert.equal(((await framed.next()) as { t: string }).t, 'hello')
  assert.equal((await dialled(gateway)).outcome, 'failed')
  const late = (await idle[0]?.next()) as { reason: string; retry: boolean }
  assert.deepEqual([late.reason, late.retry], ['TOO_LATE', true])
  const { token } = await world.enroll('node-a1')
  await until('room again', async () => {
    const node = await start(t, gateway, { nodeId: 'node-a1', token })
    await systemClock.sleep(200)
    return node.connected
  })
})

const REGISTER = {
  t: 'register',
  version: 1,
  agentVersion: 'test',
  identityGeneration: 0,
  manifest: { cpuMillis: 1000, memMb: 1000, runtimes: ['wasm'] },
  community: false,
  jailer: false,
  epochSeen: 0,
  generationSeen: 0,
}

const dialled = async (gateway: RunningGateway): ReturnType<typeof dialTls> =>
  dialTls({
    host: '127.0.0.1',
    port: gateway.port,
    identity: await createIdentity(systemRandom),
    clock: systemClock,
    timeoutMs: 3000,
  })

async function connect(gateway: RunningGateway): Promise<Framed> {
  const outcome = await dialled(gateway)
  if (outcome.outcome !== 'connected') throw new Error(outcome.reason)
  return new Framed(outcome.pipe)
}

/** Says one message as its opening and returns the answer. */
async function say(gateway: RunningGateway, message: unknown): Promise<Record<string, unknown>> {
  const framed = await connect(gateway)
  await framed.next()
  framed.send(message)
  const answer = await framed.next()
  framed.destroy()
  return answer as Record<string, unknown>
}

import assert from 'node:assert/strict'
import { createServer, connect as connectTcp, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { systemClock, type Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { silentLogger } from '#lib/log.ts'
import type { Loop } from '#lib/loop.ts'
import { systemRandom } from '#lib/random.ts'
import { parseCertificate } from '#protocol/certificate.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import { createIdentity } from '#protocol/identity.ts'
import type { InvokeHeader } from '#protocol/messages.ts'
import { ACCEPTANCE_DEADLINE_MS } from '#core/node/limits.ts'
import { testDatabase } from '#store/test-database.ts'
import { SimNode, type SimNodeSpec } from '#sim/node.ts'
import { nodeWorld, type NodeWorld } from '#sim/node-world.ts'
import { livenessLoop } from '#engine/loops/liveness.ts'
import type { RunningGateway } from '#engine/gateway/start-gateway.ts'
import { until } from '#lib/until.ts'

type StartOptions = {
  port?: number
  clock?: Clock
  identity?: ReturnType<typeof createIdentity>
  transports?: readonly ('quic' | 'tls')[]
}

async function start(
  t: TestContext,
  gateway: RunningGateway,
  spec: SimNodeSpec,
  options: StartOptions = {},
): Promise<SimNode> {
  const node = new SimNode(spec, await (options.identity ?? createIdentity(systemRandom)), {
    server: { host: '127.0.0.1', port: options.port ?? gateway.port },
    clock: options.clock ?? systemClock,
    random: systemRandom,
    transports: options.transports ?? ['tls'],
  })
  t.after(() => node.stop())
  return node
}

const row = (world: NodeWorld, id: string) =>
  world.db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirstOrThrow()

const connectivity = async (world: NodeWorld, id: string): Promise<string> =>
  (await row(world, id)).connectivity

const liveness = (
  t: TestContext,
  world: NodeWorld,
  gateway: RunningGateway,
  limits: { engineId?: string; unreachableAfterMs?: number; engineDeadAfterMs?: number } = {},
): Loop => {
  const loop = livenessLoop({
    db: world.db,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
    engineId: 'eng_test',
    gateway,
    ...limits,
  })
  loop.start()
  t.after(() => loop.stop())
  return loop
}

const header = (id: string): InvokeHeader => ({
  t: 'invoke',
  id,
  functionId: 'fn_1',
  artifact: { sha256: 'ab'.repeat(32), bytes: 1 },
  memMb: 64,
  cpuMillis: 100,
  timeoutMs: 1000,
  args: [],
  env: [],
})

async function invoke(
  gateway: RunningGateway,
  nodeRecordId: string,
  stdin: string,
): Promise<string> {
  const stream = new FramedStream(await gateway.openStream(nodeRecordId, header('inv_1')))
  await stream.read()
  await stream.write({ t: 'stdin', bytes: Buffer.from(stdin) })
  await stream.write({ t: 'stdin-end' })
  let said = ''
  for (;;) {
    const message = (await stream.read()) as { t: string; bytes?: Uint8Array }
    if (message.t === 'stdout') said += Buffer.from(message.bytes ?? []).toString()
    if (message.t === 'result') break
  }
  stream.destroy()
  return said
}

/** A TCP front that can be made to carry nothing any more: a cable that was cut, not a connection that was closed. */
async function front(t: TestContext, to: number): Promise<{ port: number; freeze(): void }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    const far = connectTcp(to, '127.0.0.1')
    for (const [one, other] of [
      [socket, far],
      [far, socket],
    ] as const) {
      sockets.add(one)
      one.on('error', () => other.destroy()).on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(async () => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const freeze = (): void => {
    for (const socket of sockets) socket.unpipe().pause()
  }
  return { port, freeze }
}

for (const transport of ['tls', 'quic'] as const)
  test(`000-48 a stream runs over a data pipe that the node dialled when asked (${transport})`, async (t) => {
    const world = await nodeWorld(t, await testDatabase(t))
    const gateway = await world.gateway()
    const { id, token } = await world.enroll('node-a1')
    const node = await start(t, gateway, { nodeId: 'node-a1', token }, { transports: [transport] })
    await until('connected', () => node.connected)
    assert.equal(gateway.session(id)?.transport, transport)
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => invoke(gateway, id, 'hello')),
    )
    assert.deepEqual([...new Set(answers)], ['node-a1\n'])
  })

test('000-48 an idle data pipe closes, and the next stream opens another; so does one whose ids run out', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ pipeIdleMs: 1, pipeIdsMax: 4 })
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  for (let round = 0; round < 10; round++) assert.equal(await invoke(gateway, id, ''), 'node-a1\n')
  assert.ok(gateway.dataPipes(id) > 0)
  await until('no pipe is left', () => {
    gateway.sweep(60_000)
    return gateway.dataPipes(id) === 0
  })
  assert.equal(await invoke(gateway, id, ''), 'node-a1\n')
})

test('ND-4 a newer session of a node closes the older one, whose agent stops with the reason', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  const first = await start(t, gateway, { nodeId: 'node-a1', token }, { identity })
  await until('connected', () => first.connected)
  const second = await start(t, gateway, { nodeId: 'node-a1', token }, { identity })
  const ended = await first.done
  assert.equal(ended.kind === 'fatal' && ended.reason, 'REPLACED')
  await until('the second holds', () => second.connected && gateway.session(id)?.epoch === 2)
  assert.equal(gateway.sessions(), 1)
  assert.equal(await connectivity(world, id), 'connected')
})

test('000-06 an agent that leaves is disconnected at once; what runs there ends undisturbed', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  const stream = new FramedStream(await gateway.openStream(id, header('inv_1')))
  await stream.read()
  node.leave()
  await until('disconnected', async () => (await connectivity(world, id)) === 'disconnected')
  assert.equal(gateway.session(id), undefined)
  await assert.rejects(gateway.openStream(id, header('inv_2')), { code: 'UNAVAILABLE' })
  await stream.write({ t: 'stdin-end' })
  assert.equal(((await stream.read()) as { t: string }).t, 'stdout')
  assert.equal(((await stream.read()) as { t: string }).t, 'result')
  stream.destroy()
})

for (const transport of ['tls', 'quic'] as const)
  test(`ND-4 nodes find an engine that stopped and started again within 5 s (${transport})`, async (t) => {
    const world = await nodeWorld(t, await testDatabase(t))
    const gateway = await world.gateway()
    const { id, token } = await world.enroll('node-a1')
    const node = await start(t, gateway, { nodeId: 'node-a1', token }, { transports: [transport] })
    await until('generation 1', async () => (await row(world, id)).observedGeneration === 1)
    const { port } = gateway
    await gateway.stop()
    assert.equal(await connectivity(world, id), 'disconnected')
    await systemClock.sleep(500)
    const began = systemClock.monotonic()
    const again = await world.gateway({ port })
    await until('it is back', () => again.session(id) !== undefined)
    assert.ok(systemClock.monotonic() - began < 5_000)
    assert.equal(again.session(id)?.epoch, 2)
    assert.equal(node.ends[0]?.kind, 'served')
  })

test('000-06 the sessions of a former self are ended at its start, before anybody dials', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  await node.stop()
  await until('ended', async () => (await connectivity(world, id)) === 'disconnected')
  // As a killed engine leaves them.
  await world.db.updateTable('nodes').set({ connectivity: 'connected' }).execute()
  await world.db.updateTable('nodeSessions').set({ disconnectedAt: null }).execute()
  await world.gateway()
  assert.equal(await connectivity(world, id), 'disconnected')
})

test('ND-5 a certificate is renewed at half of its life, over the session', async (t) => {
  const clock = fakeClock()
  const world = await nodeWorld(t, await testDatabase(t), clock)
  const gateway = await world.gateway({ certificateMs: 24 * 3_600_000 })
  const { token } = await world.enroll('node-a1')
  // Beats and dials by the wall clock, the engine's by the fake one: nobody compares them.
  const shifted: Clock = { ...systemClock, now: () => clock.now() }
  const node = await start(t, gateway, { nodeId: 'node-a1', token }, { clock: shifted })
  await until('connected', () => node.connected)
  const first = parseCertificate(node.welcome!.certificate)
  assert.equal(first.orgId, world.orgId)
  assert.equal(first.generation, 1)
  await clock.advance(11 * 3_600_000)
  gateway.sweep(1e12)
  await clock.advance(2 * 3_600_000)
  gateway.sweep(1e12)
  await until('renewed', () => {
    return parseCertificate(node.welcome!.certificate).notAfter > first.notAfter
  })
  const second = parseCertificate(node.welcome!.certificate)
  assert.equal(second.notAfter - first.notAfter, 13 * 3_600_000)
})

test('ND-5 a node that comes back keeps its certificate while it is good for another half of its life', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  const first = node.welcome!.certificate
  gateway.endSession(id, { reason: 'TEST', message: 'again', retry: true })
  await until('again', () => node.connected && node.welcome?.epoch === 2)
  assert.deepEqual(node.welcome!.certificate, first)
  // Of a life of 100 hours the 24 that are left are less than half: it is replaced at the next REGISTER.
  await gateway.stop()
  const other = await world.gateway({ port: gateway.port, certificateMs: 100 * 3_600_000 })
  await until('there', () => other.session(id) !== undefined && node.connected)
  assert.notDeepEqual(node.welcome!.certificate, first)
})

test('D18 a session that goes silent makes its node unreachable, and the node redials at once', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ beats: { small: 200, medium: 200, large: 200 } })
  liveness(t, world, gateway, { unreachableAfterMs: 1_500 })
  const { id, token } = await world.enroll('node-a1')
  const cable = await front(t, gateway.port)
  const node = await start(t, gateway, { nodeId: 'node-a1', token }, { port: cable.port })
  await until('generation 1', async () => (await row(world, id)).observedGeneration === 1)
  cable.freeze()
  // The node misses three acknowledgements long before the engine gives it up, and comes by a new connection.
  await until('a new session', () => gateway.session(id)?.epoch === 2, 3_000)
  assert.equal(node.ends[0]?.kind === 'served' && node.ends[0].reason, 'ACKS_MISSED')
  await node.stop()
})

test('ND-16 000-39 a half-open connection is noticed: unreachable, not placeable, whatever last_seen_at says', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ beats: { small: 300, medium: 300, large: 300 } })
  liveness(t, world, gateway, { unreachableAfterMs: 1_000 })
  const { id, token } = await world.enroll('node-a1')
  const cable = await front(t, gateway.port)
  // A node that does not count its acknowledgements: its clock stands still for timers once it is connected.
  const node = await start(t, gateway, { nodeId: 'node-a1', token }, { port: cable.port })
  await until('generation 1', async () => (await row(world, id)).observedGeneration === 1)
  cable.freeze()
  node.leave() // says so into the void, and dials no more
  await until('unreachable', async () => (await connectivity(world, id)) === 'unreachable', 15_000)
  assert.equal(gateway.session(id), undefined)
  const found = await row(world, id)
  assert.deepEqual(found.noScheduleReasons, ['unreachable'])
  assert.ok(found.lastSeenAt)
  const kinds = await world.db
    .selectFrom('events')
    .select('kind')
    .where('subject', '=', id)
    .execute()
  assert.ok(kinds.some(({ kind }) => kind === 'node.unreachable'))
})

test('ND-16 a node that went and stays away becomes unreachable; coming back clears it', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway({ beats: { small: 100, medium: 100, large: 100 } })
  liveness(t, world, gateway, { unreachableAfterMs: 1_500 })
  const { id, token } = await world.enroll('node-a1')
  const never = await world.enroll('node-b2')
  const identity = createIdentity(systemRandom)
  const node = await start(t, gateway, { nodeId: 'node-a1', token }, { identity })
  await until('connected', () => node.connected)
  await node.stop()
  await until('disconnected', async () => (await connectivity(world, id)) === 'disconnected')
  await until('unreachable', async () => (await connectivity(world, id)) === 'unreachable')
  assert.equal(await connectivity(world, never.id), 'disconnected')
  const back = await start(t, gateway, { nodeId: 'node-a1', token }, { identity })
  await until('connected', () => back.connected)
  const found = await row(world, id)
  assert.equal(found.connectivity, 'connected')
  assert.deepEqual(found.noScheduleReasons, [])
})

test('000-40 the sessions of an engine whose beat stands still are ended by another', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const one = await world.gateway({ engineId: 'eng_one' })
  const two = await world.gateway({ engineId: 'eng_two' })
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, one, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  const first = liveness(t, world, one, { engineId: 'eng_one' })
  liveness(t, world, two, { engineId: 'eng_two', engineDeadAfterMs: 2_500 })
  await systemClock.sleep(4_000)
  assert.equal(await connectivity(world, id), 'connected')
  await first.stop()
  await until('ended', async () => (await connectivity(world, id)) === 'disconnected')
})

test('000-06 a session that another engine took over is dropped by the first at its next flush', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const one = await world.gateway({ engineId: 'eng_one' })
  const two = await world.gateway({ engineId: 'eng_two' })
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  const first = await start(t, one, { nodeId: 'node-a1', token }, { identity })
  await until('connected', () => first.connected)
  const second = await start(t, two, { nodeId: 'node-a1', token }, { identity })
  await until('connected', () => second.connected)
  assert.equal(two.session(id)?.epoch, 2)
  first.leave() // it would redial
  await one.flushSeen()
  assert.equal(one.session(id), undefined)
  assert.equal(await connectivity(world, id), 'connected')
  assert.equal(two.session(id)?.epoch, 2)
})

test('000-46 endSession ends the agent for good, with the message', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token })
  await until('connected', () => node.connected)
  gateway.endSession(id, { reason: 'NODE_REVOKED', message: 'it was revoked', retry: false })
  const ended = await node.done
  assert.deepEqual(ended, { kind: 'fatal', reason: 'NODE_REVOKED', message: 'it was revoked' })
})

test('OP-9 what a store that was away did not take is asked for again; REGISTER waits for it', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  let away = false
  const db = new Proxy(world.db, {
    get(target, key) {
      if (away && (key === 'transaction' || key === 'executeQuery'))
        throw new AppError('UNAVAILABLE', 'The database cannot be reached')
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const gateway = await world.gateway({ db })
  const { id, token } = await world.enroll('node-a1')
  const check = { ok: true, output: 'fine' }
  const node = await start(t, gateway, {
    nodeId: 'node-a1',
    token,
    check,
    onCommand: () => (away = true),
  })
  await until('asked', () => node.commands.length > 0)
  await systemClock.sleep(300)
  assert.equal((await row(world, id)).provisionState, 'adopting')
  const other = await world.enroll('node-b2')
  const waiting = await start(t, gateway, { nodeId: 'node-b2', token: other.token })
  await until('refused', () =>
    waiting.ends.some((end) => end.kind === 'retryable' && end.reason === 'store_unavailable'),
  )
  assert.equal(node.connected, true)
  node.spec.onCommand = undefined
  away = false
  await until('adopted', async () => (await row(world, id)).observedGeneration === 1)
  await until('registered', () => waiting.connected)
  assert.equal(node.welcome?.epoch, 1)
})

test('ND-24 a check that is not answered by its deadline fails the node, and a late answer changes nothing', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  // Only the deadline is hurried.
  const hurried: Clock = {
    ...systemClock,
    after: (ms, fn) => systemClock.after(ms === ACCEPTANCE_DEADLINE_MS ? 200 : ms, fn),
  }
  const gateway = await world.gateway({ clock: hurried })
  const { id, token } = await world.enroll('node-a1')
  const node = await start(t, gateway, { nodeId: 'node-a1', token, check: 'silent' })
  await until('failed', async () => (await row(world, id)).provisionState === 'failed')
  assert.equal((await row(world, id)).failure, 'diag.wasm: no answer within 30000 ms')
  node.send({ t: 'command-result', id: node.commands[0]!, ok: true, output: 'late' })
  await systemClock.sleep(200)
  assert.equal((await row(world, id)).provisionState, 'failed')
  const [command] = await world.db.selectFrom('commands').selectAll().execute()
  assert.equal(command?.state, 'expired')
})

test('ND-25 a command is run once, and asked for again after a reconnect; its late result is dropped', async (t) => {
  const world = await nodeWorld(t, await testDatabase(t))
  const gateway = await world.gateway()
  const { id, token } = await world.enroll('node-a1')
  const identity = createIdentity(systemRandom)
  const mute = await start(t, gateway, { nodeId: 'node-a1', token, check: 'silent' }, { identity })
  await until('asked', () => mute.commands.length === 1)
  await mute.stop()
  const node = await start(t, gateway, { nodeId: 'node-a1', token }, { identity })
  await until('adopted', async () => (await row(world, id)).provisionState === 'adopted')
  assert.deepEqual(node.commands, mute.commands)
  const commands = await world.db.selectFrom('commands').selectAll().execute()
  assert.deepEqual(
    commands.map(({ state }) => state),
    ['succeeded'],
  )
})

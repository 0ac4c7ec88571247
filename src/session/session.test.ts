import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { Framed } from '#protocol/framed.ts'
import { createIdentity, fingerprintOf, type Identity } from '#protocol/identity.ts'
import type { FromEngine, Welcome } from '#protocol/messages.ts'
import { signStatement, type RootPin } from '#protocol/statement.ts'
import { listenTls } from '#protocol/tls-pipe.ts'
import { Session, type SessionHost } from '#session/session.ts'
import type { Outcome } from '#session/outcome.ts'

const root = await createIdentity(systemRandom)
const engine = await createIdentity(systemRandom)
const node = await createIdentity(systemRandom)

const statement = (by: Identity, of = engine.publicKey, shiftMs = 0): Uint8Array =>
  signStatement(by, {
    engineKey: of,
    engineId: 'eng_1',
    notBefore: systemClock.now() + shiftMs,
    notAfter: systemClock.now() + shiftMs + 60_000,
  })

const hello = (over: Record<string, unknown> = {}) => ({
  t: 'hello',
  versions: [1],
  statement: statement(root),
  ...over,
})

const welcome = (over: Partial<Welcome> = {}): Welcome => ({
  t: 'welcome',
  epoch: 3,
  engineId: 'eng_1',
  heartbeatMs: 50,
  certificate: Buffer.from('certificate'),
  fleetRoot: Buffer.from(root.publicKey, 'hex'),
  identityGeneration: 1,
  node: { id: 'node_1', orgId: 'org_1', trustTier: 'secure' },
  desired: { generation: 1 },
  ...over,
})

type Heard = { t: string; seq?: number }
type Script = (framed: Framed, heard: Heard[]) => void | Promise<void>

/** An engine that does what the script says on every connection; what a node said is kept. */
async function fakeEngine(
  t: TestContext,
  script: Script,
): Promise<{ port: number; heard: Heard[] }> {
  const heard: Heard[] = []
  const listener = await listenTls({
    host: '127.0.0.1',
    port: 0,
    identity: engine,
    clock: systemClock,
    onPipe: async (pipe) => {
      t.after(async () => pipe.destroy())
      await script(new Framed(pipe), heard)
    },
  })
  t.after(() => listener.close())
  return { port: listener.port, heard }
}

/** Says hello, keeps what the node says, and answers its REGISTER. */
const answering =
  (answer: unknown, then: (framed: Framed, message: Heard) => void = () => {}): Script =>
  (framed, heard) => {
    framed.onMessage((raw) => {
      const message = raw as Heard
      heard.push(message)
      if (message.t === 'register') framed.send(answer)
      else then(framed, message)
    })
    framed.send(hello())
  }

type Told = { welcomes: Welcome[]; generations: number[]; commands: string[]; renewed: number }

function sessionTo(
  port: number,
  options: { pin?: RootPin } = {},
): { session: Session; told: Told; outcome: Promise<Outcome> } {
  const told: Told = { welcomes: [], generations: [], commands: [], renewed: 0 }
  const host: SessionHost = {
    register: () => ({
      agentVersion: 'test',
      nodeId: 'node-a1',
      token: 'clt_n_secret',
      identityGeneration: 0,
      manifest: { cpuMillis: 1000, memMb: 1000, runtimes: ['wasm'] },
      community: false,
      jailer: false,
      epochSeen: 0,
      generationSeen: 0,
    }),
    pin: () => options.pin ?? { fingerprint: fingerprintOf(root.publicKey, 16) },
    certificatePem: () => undefined,
    welcomed: (each) => void told.welcomes.push(each),
    desired: (generation) => void told.generations.push(generation),
    command: ({ id }) => void told.commands.push(id),
    cancel: () => undefined,
    renewed: () => void told.renewed++,
    stream: (_, stream) => stream.destroy(),
  }
  const session = new Session({
    server: { host: '127.0.0.1', port },
    identity: node,
    clock: systemClock,
    random: systemRandom,
    host,
    transports: ['tls'],
  })
  return { session, told, outcome: session.run() }
}

/** How a session with such an engine ends, and whether the node showed its token to it. */
async function endWith(
  t: TestContext,
  script: Script,
  options: { pin?: RootPin } = {},
): Promise<{ outcome: Outcome; shown: boolean }> {
  const { port, heard } = await fakeEngine(t, script)
  const outcome = await sessionTo(port, options).outcome
  return { outcome, shown: heard.length > 0 }
}

const saying =
  (...messages: unknown[]): Script =>
  (framed, heard) => {
    framed.onMessage((raw) => void heard.push(raw as Heard))
    for (const message of messages) framed.send(message)
  }

test('ND-2 an engine of another fleet gets no secret: the end for a token, another try for a member', async (t) => {
  const other = await createIdentity(systemRandom)
  const script = saying(hello({ statement: statement(other) }))
  const first = await endWith(t, script)
  assert.equal(first.outcome.kind === 'fatal' && first.outcome.reason, 'STATEMENT_WRONG_ROOT')
  assert.equal(first.shown, false)
  const member = await endWith(t, script, { pin: { publicKey: root.publicKey } })
  assert.equal(member.outcome.kind, 'retryable')
  assert.equal(member.shown, false)
})

for (const [what, bytes] of [
  ['for another engine key', statement(root, node.publicKey)],
  ['that ended a day ago', statement(root, engine.publicKey, -86_400_000)],
  ['that is none', Buffer.from('nonsense')],
  ['that is too long', Buffer.alloc(5_000)],
] as const)
  test(`ND-2 a statement ${what} gets no secret`, async (t) => {
    const { outcome, shown } = await endWith(t, saying(hello({ statement: bytes })))
    assert.equal(outcome.kind, 'retryable')
    assert.equal(shown, false)
  })

test('ND-2 a second engine of the fleet is recognized by the same root', async (t) => {
  const { port } = await fakeEngine(t, answering(welcome({ engineId: 'eng_2' })))
  const { session, told, outcome } = sessionTo(port, { pin: { publicKey: root.publicKey } })
  await until('a welcome', () => told.welcomes.length === 1)
  session.close()
  assert.deepEqual(await outcome, { kind: 'drained' })
})

test('ND-4 an engine that is too new ends the agent, one that is too old is tried again', async (t) => {
  const young = await endWith(t, saying(hello({ versions: [7, 8] })))
  assert.equal(young.outcome.kind === 'fatal' && young.outcome.reason, 'VERSION')
  const old = await endWith(t, saying(hello({ versions: [0] })))
  assert.equal(old.outcome.kind === 'retryable' && old.outcome.reason, 'VERSION')
  const mixed = await fakeEngine(t, saying(hello({ versions: [0, 1, 2] })))
  const { session } = sessionTo(mixed.port)
  await until('a REGISTER', () => mixed.heard[0]?.t === 'register')
  session.close()
})

test('ND-4 a refusal is what the engine says, and whether another try can help', async (t) => {
  const refused = { t: 'refused', reason: 'KEY_MISMATCH', message: 'another machine', retry: false }
  const final = await endWith(t, answering(refused))
  assert.deepEqual(final.outcome, {
    kind: 'fatal',
    reason: 'KEY_MISMATCH',
    message: 'another machine',
  })
  const passing = await endWith(t, answering({ ...refused, reason: 'BUSY', retry: true }))
  assert.equal(passing.outcome.kind, 'retryable')
})

test('ND-4 engines that answer nonsense, close, or name another root are tried again', async (t) => {
  for (const answer of [
    { t: 'joined' },
    { t: 'nonsense' },
    7,
    welcome({ fleetRoot: Buffer.alloc(32) }),
  ]) {
    const { outcome } = await endWith(t, answering(answer))
    assert.equal(outcome.kind, 'retryable', JSON.stringify(answer))
  }
  const closed = await endWith(t, (framed) => framed.close())
  assert.equal(closed.outcome.kind, 'retryable')
  const nobody = await sessionTo(1).outcome
  assert.equal(nobody.kind === 'retryable' && nobody.reason, 'UNREACHABLE')
})

test('D18 a node that misses three acknowledgements gives the session up', async (t) => {
  const { port, heard } = await fakeEngine(t, answering(welcome()))
  const { outcome } = sessionTo(port)
  const ended = await outcome
  assert.equal(ended.kind === 'served' && ended.reason, 'ACKS_MISSED')
  assert.equal(heard.filter(({ t: kind }) => kind === 'heartbeat').length, 3)
})

test('D18 the engine says how often to beat; an acknowledgement of what was never sent counts for nothing', async (t) => {
  const acks = answering(welcome(), (framed, { seq = 0 }) =>
    framed.send({ t: 'heartbeat-ack', seq, heartbeatMs: 20 }),
  )
  const good = await fakeEngine(t, acks)
  const { session, outcome } = sessionTo(good.port)
  await until('ten messages', () => good.heard.length > 10)
  session.close()
  assert.equal((await outcome).kind, 'drained')
  const lying = await fakeEngine(
    t,
    answering(welcome(), (framed) =>
      framed.send({ t: 'heartbeat-ack', seq: 1_000_000, heartbeatMs: 50 }),
    ),
  )
  const ended = await sessionTo(lying.port).outcome
  assert.equal(ended.kind === 'served' && ended.reason, 'ACKS_MISSED')
})

test('ND-5 what the engine says reaches the program; a goodbye ends the session as it says', async (t) => {
  const says: FromEngine[] = [
    { t: 'desired', generation: 4 },
    { t: 'command', id: 'cmd_1', kind: 'diag.wasm', deadlineMs: 1000 },
    { t: 'renew', certificate: Buffer.from('next') },
    { t: 'goodbye', reason: 'ENGINE_STOPPING', message: 'later', spreadMs: 70, retry: true },
  ]
  const script = answering(welcome(), (framed, { seq }) => {
    if (seq === 1) for (const message of says) framed.send(message)
  })
  const { port } = await fakeEngine(t, script)
  const { told, outcome } = sessionTo(port)
  const ended = await outcome
  assert.ok(ended.kind === 'served' && ended.spreadMs === 70 && ended.reason === 'ENGINE_STOPPING')
  assert.deepEqual(told.generations, [1, 4])
  assert.deepEqual(told.commands, ['cmd_1'])
  assert.equal(told.renewed, 1)
  assert.equal(told.welcomes[0]?.epoch, 3)
})

test('ND-4 a message that is none ends the session, and nothing else', async (t) => {
  const { port } = await fakeEngine(
    t,
    answering(welcome(), (framed) => framed.send({ t: 'format-disk' })),
  )
  const ended = await sessionTo(port).outcome
  assert.equal(ended.kind, 'served')
})

test('ND-3 an agent that leaves says so before it goes, and its goodbye arrives', async (t) => {
  const { port, heard } = await fakeEngine(t, answering(welcome({ heartbeatMs: 10_000 })))
  const { session, told, outcome } = sessionTo(port)
  await until('a welcome', () => told.welcomes.length === 1)
  session.leave()
  session.close()
  assert.deepEqual(await outcome, { kind: 'drained' })
  await until('leaving is heard', () => heard.some(({ t: kind }) => kind === 'leaving'))
})

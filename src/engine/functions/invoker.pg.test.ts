// The invoker against scripted nodes, through the kernel: real Postgres, real HTTP, real stream messages.
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { SLOT_IDLE_MS, STDERR_MAX, STDOUT_MAX } from '#core/function/limits.ts'
import { type FakeClock, fakeClock } from '#lib/fake-clock.ts'
import { systemClock, type Clock } from '#lib/clock.ts'
import { seededRandom } from '#lib/random.ts'
import { slotDrift } from '#store/functions/slots.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { until } from '#lib/until.ts'
import {
  type Bed,
  component,
  gate,
  invokerBed,
  prepare,
  request,
  slotsOf,
  unitsOf,
} from '#test/invoker-bed.ts'
import type { Script } from '#test/scripted-nodes.ts'
import { ORG } from '#test/world.ts'

const setup = (t: TestContext, clock?: Clock): Promise<Bed> => invokerBed(t, clock ? { clock } : {})

test('000-48 000-58 000-60 000-61 the bytes travel inline, stdin in, stdout out, the answer whole', async (t) => {
  const { nodes, add, deploy, invoke, world } = await setup(t)
  await add(['node-a1', { trustTier: 'community' }])
  await deploy('hello', { allowCommunity: true, memMb: 32, cpuMillis: 250, timeoutMs: 5_000 })
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(false)
    await invocation.stdout(`got ${invocation.stdin.length}`)
    await invocation.say({ t: 'stderr', bytes: Uint8Array.of(0xff) })
    await systemClock.sleep(20)
    await invocation.result({ kind: 'exited', exitCode: 7 }, 20)
  })
  const stdin = 'x'.repeat(300_000)
  const answer = await invoke('hello', { args: ['a', 'b'], env: { K: 'v' }, stdin, timeoutMs: 900 })
  assert.deepEqual(answer, {
    ok: false,
    exitCode: 7,
    durationMs: 20,
    error: 'exited with code 7',
    reason: 'exit',
    stdout: 'got 300000',
    stderr: '\uFFFD',
    stderrBase64: '/w==',
    stdoutTruncated: false,
    stderrTruncated: false,
    fuelUsed: null,
    memPeakMb: 1.5,
    node_id: 'node-a1',
    trust_tier: 'community',
  })
  const { header } = nodes.opened[0]!
  const [slot] = await slotsOf(world)
  assert.deepEqual(
    { ...header, id: '', artifact: header.artifact.bytes },
    {
      t: 'invoke',
      id: '',
      functionId: slot?.functionId,
      artifact: 200_000,
      memMb: 32,
      cpuMillis: 250,
      timeoutMs: 900,
      args: ['a', 'b'],
      env: [['K', 'v']],
    },
  )
  assert.deepEqual([slot?.cpuMillis, slot?.memMb], [250, 32 + 64])
})

test('000-60 D42 ok, exit codes and every other end', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const ends = [
    [
      { kind: 'exited', exitCode: 0 },
      { ok: true, exitCode: 0 },
    ],
    [
      { kind: 'exited', exitCode: 255 },
      { ok: false, exitCode: 255, reason: 'exit' },
    ],
    [
      { kind: 'trap', message: 'm' },
      { ok: false, exitCode: null, reason: 'trap', error: 'm' },
    ],
    [
      { kind: 'memory', message: 'm' },
      { ok: false, exitCode: null, reason: 'memory' },
    ],
    [
      { kind: 'timeout', message: 'm' },
      { ok: false, exitCode: null, reason: 'timeout' },
    ],
    [
      { kind: 'fault', message: 'm' },
      { ok: false, exitCode: null, reason: 'node-fault' },
    ],
    [
      { kind: 'exited', exitCode: 70_000 },
      { ok: false, exitCode: null, reason: 'node-fault' },
    ],
    [{ kind: 'cancelled' }, { ok: false, exitCode: null, reason: 'node-lost' }],
  ] as const
  for (const [end, expected] of ends) {
    nodes.scripts.set('node-a1', async (invocation) => {
      await invocation.start(true)
      await invocation.result(end)
    })
    const answer = await invoke('hello')
    assert.partialDeepStrictEqual(answer, expected)
    assert.equal('error' in answer, !answer.ok)
  }
})

test('000-51 D45 what was never deployed, or by another org, is NOT_FOUND', async (t) => {
  const { world, deploy, invoke } = await setup(t)
  await assert.rejects(invoke('nothing'), { code: 'NOT_FOUND' })
  await deploy('hello')
  const other = await world.makeOrg('other')
  const stranger = world.client(await world.orgKey('owner', other))
  const { functions } = stranger.compute
  await assert.rejects(functions.invoke({ orgId: other, name: 'hello' }), { code: 'NOT_FOUND' })
  await assert.rejects(functions.invoke({ orgId: ORG, name: 'hello' }), { code: 'FORBIDDEN' })
})

test('D43 no enrolled node could run it: no-node at once, in the words of explain', async (t) => {
  const { deploy, invoke, add, client } = await setup(t)
  await deploy('hello')
  const began = Date.now()
  const empty = await invoke('hello')
  assert.deepEqual(
    [empty.ok, empty.reason, empty.exitCode, empty.node_id],
    [false, 'no-node', null, null],
  )
  assert.match(
    empty.error ?? '',
    /^no node can run this: enroll one with the wasm runtime, 1000 millicores and 128 MiB$/,
  )
  await add(['node-a1', { trustTier: 'community' }])
  const refused = await invoke('hello')
  assert.equal(refused.reason, 'no-node')
  const { summary } = await client.compute.placement.explain({ orgId: ORG, name: 'hello' })
  assert.equal(refused.error, summary)
  assert.match(summary, /node-a1, cannot run this: it is a community node/)
  assert.ok(Date.now() - began < 5_000)
})

test('D43 an invocation waits for a node that is coming, and runs when it is there', async (t) => {
  const { world, nodes, deploy, invoke } = await setup(t)
  await deploy('hello')
  await seedNodes(
    world.engine.db,
    [nodeRow('node-a1', world.platformOrgId, { connectivity: 'disconnected' })],
    world.engine.id,
  )
  const answer = invoke('hello')
  await until('it waits', async () => world.engine.invoker.running() === 1)
  await world.engine.db.updateTable('nodes').set({ connectivity: 'connected' }).execute()
  nodes.connect('node-a1')
  assert.equal((await answer).ok, true)
})

test('D43 after ten seconds without room it is no-node', async (t) => {
  const clock = fakeClock()
  const { world, invoker, nodes, add, deploy } = await setup(t, clock)
  await add(['node-a1', { noScheduleReasons: ['draining'] }])
  await deploy('hello')
  const answer = invoker.invoke(request(world))
  await passes(clock, 9_400)
  assert.equal(invoker.running(), 1)
  await passes(clock, 1_500)
  const { outcome, durationMs } = await answer
  assert.equal(outcome.kind, 'no-node')
  assert.ok(durationMs >= 10_000 && durationMs < 11_000, `${durationMs}`)
  assert.equal(nodes.opened.length, 0)
})

/** Time moves in steps; the database answers in real time between them. */
async function passes(clock: FakeClock, ms: number): Promise<void> {
  for (let gone = 0; gone < ms; gone += 100) {
    await clock.advance(100)
    await systemClock.sleep(2)
  }
}

test('000-43 000-44 a draining node gets nothing new though its slot is warm; resumed, waiting work runs', async (t) => {
  const { world, nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const admin = world.client(await world.orgKey('admin'))
  assert.equal((await invoke('hello')).ok, true)
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const running = invoke('hello')
  await until('it runs', () => hold.begun === 1)
  await admin.compute.nodes.setDraining({ orgId: ORG, id: 'node-a1', draining: true })
  nodes.scripts.delete('node-a1')
  const waiting = invoke('hello')
  hold.open()
  assert.equal((await running).ok, true, 'what runs goes on')
  await until('the other waits', () => world.engine.invoker.running() === 1)
  assert.equal(nodes.opened.length, 2)
  const began = Date.now()
  await admin.compute.nodes.setDraining({ orgId: ORG, id: 'node-a1', draining: false })
  assert.equal((await waiting).ok, true)
  assert.ok(Date.now() - began < 1_000)
})

test('000-32 a warm slot on a node that became community is not used without the opt-in', async (t) => {
  const { world, heard, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  assert.equal((await invoke('hello')).trust_tier, 'secure')
  await world.engine.db.updateTable('nodes').set({ communityFlag: true }).execute()
  await heard()
  assert.equal((await invoke('hello')).reason, 'no-node')
  await deploy('hello', { allowCommunity: true })
  assert.equal((await invoke('hello')).trust_tier, 'community')
})

test('FN-6 a node lost in mid-invocation is node-lost, its slot comes back, and nothing is retried', async (t) => {
  const { world, nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'], ['node-a2'])
  await deploy('hello')
  const hold = gate()
  for (const id of ['node-a1', 'node-a2']) nodes.scripts.set(id, hold.script)
  const answer = invoke('hello')
  await until('it runs', () => hold.begun === 1)
  const { nodeRecordId } = nodes.opened[0]!
  nodes.lose(nodeRecordId)
  const { ok, reason, error, node_id } = await answer
  assert.deepEqual([ok, reason, node_id], [false, 'node-lost', nodeRecordId])
  assert.match(error ?? '', /went away during the invocation/)
  assert.equal(nodes.opened.length, 1)
  nodes.scripts.clear()
  assert.equal((await invoke('hello')).ok, true)
  hold.open()
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('FN-3 a node that cannot be reached before anything ran is passed over', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'], ['node-a2'])
  await deploy('hello')
  nodes.refuseStreams.add('node-a1')
  for (let i = 0; i < 4; i++) assert.equal((await invoke('hello')).node_id, 'node-a2')
})

test('FN-3 a fault before the guest showed anything runs elsewhere; after it, it is told as node-fault', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'], ['node-a2'])
  await deploy('hello')
  const fault = { kind: 'fault', message: 'no child could be made' } as const
  nodes.scripts.set('node-a1', (invocation) => invocation.result(fault))
  for (let i = 0; i < 4; i++) assert.equal((await invoke('hello')).node_id, 'node-a2')
  for (const id of ['node-a1', 'node-a2'])
    nodes.scripts.set(id, async (invocation) => {
      await invocation.start(true)
      await invocation.stdout('half')
      await invocation.result(fault)
    })
  const before = nodes.opened.length
  const answer = await invoke('hello')
  assert.deepEqual(
    [answer.reason, answer.error, answer.stdout],
    ['node-fault', fault.message, 'half'],
  )
  assert.equal(nodes.opened.length, before + 1)
})

test('FN-3 the only node’s fault is told at once', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  nodes.scripts.set('node-a1', (invocation) =>
    invocation.result({ kind: 'fault', message: 'broken' }),
  )
  const began = Date.now()
  const answer = await invoke('hello')
  assert.deepEqual([answer.ok, answer.reason, answer.error], [false, 'node-fault', 'broken'])
  assert.ok(Date.now() - began < 3_000)
  assert.equal(nodes.opened.length, 1)
})

test('FN-3 a node that breaks the protocol is at fault: out of turn, malformed, or ending without a result', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const scripts: Script[] = [
    (invocation) => invocation.stdout('too early'),
    async (invocation) => {
      await invocation.start(true)
      await invocation.say({ t: 'artifact', have: true })
    },
    (invocation) => invocation.stream.write({ t: 'nonsense' }),
    async ({ stream }) => void stream.stream.write(Buffer.from('ffffffffff', 'hex')),
    (invocation) => invocation.start(true),
  ]
  for (const script of scripts) {
    nodes.scripts.set('node-a1', script)
    const answer = await invoke('hello')
    assert.deepEqual([answer.ok, answer.reason], [false, 'node-fault'], answer.error ?? '')
  }
})

test('FN-3 output is cut at 1 MiB and 256 KiB by the engine too, and the rest is read', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    for (let i = 0; i < 40; i++) {
      await invocation.stdout('a'.repeat(64 * 1024 - 1))
      await invocation.say({ t: 'stderr', bytes: new Uint8Array(32 * 1024).fill(98) })
    }
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  const answer = await invoke('hello')
  assert.deepEqual(
    [answer.ok, answer.stdout.length, answer.stderr.length],
    [true, STDOUT_MAX, STDERR_MAX],
  )
  assert.ok(answer.stdoutTruncated && answer.stderrTruncated)
  assert.equal(answer.stdoutBase64, undefined)
})

test('FN-3 a caller that goes away closes the stream and frees the slot', async (t) => {
  const { world, nodes, invoker, add, deploy, invoke } = await setup(t)
  await add(['node-a1', { cpuMillis: 1_000 }])
  await deploy('hello')
  const closed = Promise.withResolvers<void>()
  let begun = false
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(false)
    begun = true
    await invocation.closed()
    closed.resolve()
  })
  const caller = new AbortController()
  const gone = invoker.invoke(request(world, { signal: caller.signal }))
  await until('it runs', () => begun)
  caller.abort(new Error('gone'))
  assert.equal((await gone).outcome.kind, 'cancelled')
  await closed.promise
  nodes.scripts.clear()
  assert.equal((await invoke('hello')).ok, true)
  assert.equal(nodes.openStreams(), 0)
  const waiter = new AbortController()
  nodes.lose('node-a1')
  const waiting = invoker.invoke(request(world, { signal: waiter.signal }))
  await until('it waits', () => invoker.running() === 1)
  waiter.abort(new Error('gone'))
  assert.equal((await waiting).outcome.kind, 'cancelled')
})

test('FN-4 a node that hangs is given up: before it answers, and past the invocation’s time', async (t) => {
  const clock = fakeClock()
  const { world, invoker, nodes, add, deploy } = await setup(t, clock)
  await add(['node-a1'])
  await deploy('hello', { timeoutMs: 1_000 })
  nodes.scripts.set('node-a1', (invocation) => invocation.closed())
  const silent = invoker.invoke(request(world))
  await until('it is asked', () => nodes.opened.length === 1)
  await passes(clock, 16_000)
  const first = await silent
  assert.equal(first.outcome.kind, 'fault')
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const endless = invoker.invoke(request(world))
  await until('it runs', () => hold.begun === 1)
  await passes(clock, 15_000)
  assert.equal(invoker.running(), 1, 'the node has its margin')
  await passes(clock, 2_000)
  const second = await endless
  assert.ok(second.outcome.kind === 'fault' && /did not end/.test(second.outcome.message))
  hold.open()
})

test('ND-22 a unit runs one invocation at a time; more make more units while there is room, then wait', async (t) => {
  const { world, nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1', { cpuMillis: 3_000 }])
  await deploy('hello')
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const answers = Array.from({ length: 5 }, () => invoke('hello'))
  await until('three run', () => hold.begun === 3)
  assert.deepEqual(
    (await slotsOf(world)).map(({ units }) => units),
    [3],
  )
  await systemClock.sleep(100)
  assert.equal(nodes.openStreams(), 3, 'the others wait')
  hold.open()
  assert.deepEqual(
    (await Promise.all(answers)).map((answer) => answer.ok),
    Array(5).fill(true),
  )
  assert.equal(await unitsOf(world), 3)
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('ND-22 short invocations share a unit: another is made only when one waits for long', async (t) => {
  // Time stands still, so nobody waits for long.
  const { world, invoker, add, deploy } = await setup(t, fakeClock())
  await add(['node-a1', { cpuMillis: 16_000, memMb: 16_384 }])
  await deploy('hello')
  const all = await Promise.all(Array.from({ length: 12 }, () => invoker.invoke(request(world))))
  assert.ok(all.every(({ outcome }) => outcome.kind === 'exited'))
  assert.equal(await unitsOf(world), 1)
})

test('FN-7 a redeploy leaves what runs on the old bytes, serves the new to the next, and returns the old slot', async (t) => {
  const { world, nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const running = invoke('hello')
  await until('it runs', () => hold.begun === 1)
  await deploy('hello', { component: component(1) })
  nodes.scripts.delete('node-a1')
  assert.equal((await invoke('hello')).ok, true)
  const [old, next] = nodes.opened.map(({ header }) => header.artifact.sha256)
  assert.notEqual(old, next)
  assert.deepEqual(
    (await slotsOf(world)).map(({ version }) => version),
    [1, 2],
  )
  hold.open()
  assert.equal((await running).ok, true)
  await until('the old slot is back', async () => (await slotsOf(world)).length === 1)
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('FN-7 deleting lets what runs end, returns its slot, and the name is unknown at once', async (t) => {
  const { world, nodes, client, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const running = invoke('hello')
  await until('it runs', () => hold.begun === 1)
  await client.compute.functions.delete({ orgId: ORG, name: 'hello' })
  await assert.rejects(invoke('hello'), { code: 'NOT_FOUND' })
  assert.equal((await slotsOf(world)).length, 1)
  hold.open()
  assert.equal((await running).ok, true)
  await until('the slot is back', async () => (await slotsOf(world)).length === 0)
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('ND-22 an idle slot is given back after SLOT_IDLE_MS, a busy one never', async (t) => {
  const clock = fakeClock()
  const { world, invoker, nodes, add, deploy } = await setup(t, clock)
  await add(['node-a1'])
  await deploy('hello')
  await invoker.invoke(request(world))
  await clock.advance(SLOT_IDLE_MS - 1)
  await invoker.tidySlots()
  assert.equal((await slotsOf(world)).length, 1)
  await clock.advance(1)
  await invoker.tidySlots()
  // The pass that the node's session caused may be the one that gives it back.
  await until('it is back', async () => (await slotsOf(world)).length === 0)
  const hold = gate()
  nodes.scripts.set('node-a1', hold.script)
  const running = invoker.invoke(request(world, { timeoutMs: 600_000 }))
  await until('it runs', () => hold.begun === 1)
  await clock.advance(SLOT_IDLE_MS * 2)
  assert.partialDeepStrictEqual(await invoker.tidySlots(), { slots: 1, released: 0 })
  hold.open()
  await running
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('ND-22 after a restart the engine adopts the slots of its former self and uses them', async (t) => {
  const { world, nodes, invoker, add, deploy, invoke } = await setup(t)
  await add(['node-a1', { cpuMillis: 1_000 }])
  await deploy('hello')
  await invoke('hello')
  await invoker.stop()
  const again = createInvoker({ ...world.engine, gateway: nodes, prepare })
  t.after(() => again.stop())
  assert.partialDeepStrictEqual(await again.tidySlots(), { slots: 1, adopted: 1 })
  const { outcome } = await again.invoke(request(world))
  assert.equal(outcome.kind, 'exited')
  assert.equal((await slotsOf(world)).length, 1)
})

test('PL-4 idle slots of another function give way when there is no room', async (t) => {
  const { world, add, deploy, invoke } = await setup(t)
  await add(['node-a1', { cpuMillis: 1_000 }])
  await deploy('hello')
  await deploy('other', { component: component(1) })
  for (const name of ['hello', 'other', 'hello', 'other'])
    assert.equal((await invoke(name)).ok, true)
  assert.deepEqual(
    (await slotsOf(world)).map(({ functionName }) => functionName),
    ['other'],
  )
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('ND-9 a revoked node’s slots are gone, and waiting work goes elsewhere', async (t) => {
  const { world, nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  await invoke('hello')
  const admin = world.client(await world.orgKey('admin'))
  await admin.compute.nodes.revoke({ orgId: ORG, id: 'node-a1' })
  assert.equal(nodes.session('node-a1'), undefined)
  assert.equal((await slotsOf(world)).length, 0)
  assert.equal((await invoke('hello')).reason, 'no-node')
  await add(['node-a2'])
  assert.equal((await invoke('hello')).node_id, 'node-a2')
})

test('000-76 FN-7 ends are counted and stand in the history within 200 ms of a flush', async (t) => {
  const { world, nodes, client, invoker, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  await invoke('hello')
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await invocation.result({ kind: 'trap', message: 'unreachable here' })
  })
  await invoke('hello')
  assert.equal(await invoker.flushHistory(), 2)
  const { invocations } = await client.compute.functions.invocations({ orgId: ORG, name: 'hello' })
  assert.deepEqual(
    invocations.map(({ ok, exit_code, reason, error, node_id, version }) => [
      ok,
      exit_code,
      reason,
      error,
      node_id,
      version,
    ]),
    [
      [false, null, 'trap', 'unreachable here', 'node-a1', 1],
      [true, 0, null, null, 'node-a1', 1],
    ],
  )
  const metrics = await world.engine.metrics.registry.metrics()
  assert.match(metrics, /clutch_invocations_total\{outcome="ok"\} 1/)
  assert.match(metrics, /clutch_invocations_total\{outcome="trap"\} 1/)
  assert.match(metrics, /clutch_placements_total\{outcome="placed"\} 1/)
})

test('FN-7 pages of the history follow each other without gap or repeat', async (t) => {
  const { client, invoker, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  for (let i = 0; i < 7; i++) await invoke('hello')
  await invoker.flushHistory()
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const of = { orgId: ORG, name: 'hello', limit: 3, ...(cursor ? { cursor } : {}) }
    const page = await client.compute.functions.invocations(of)
    seen.push(...page.invocations.map(({ id }) => id))
    cursor = page.next_cursor ?? undefined
  } while (cursor)
  assert.equal(seen.length, 7)
  assert.deepEqual(seen, [...new Set(seen)].toSorted().toReversed())
})

test('UNAVAILABLE says so when the only fitting node is at another engine', async (t) => {
  const { world, deploy, invoke } = await setup(t)
  await deploy('hello')
  await seedNodes(world.engine.db, [nodeRow('node-a1', world.platformOrgId)], 'eng_other')
  await assert.rejects(invoke('hello'), (error: { code: string; data?: { reason?: string } }) => {
    assert.deepEqual([error.code, error.data?.reason], ['UNAVAILABLE', 'NODE_ELSEWHERE'])
    return true
  })
})

test('PL-4 under random load and lost sessions every invocation ends, and no counter drifts', async (t) => {
  const seed = `${process.pid}-${Date.now()}`
  t.diagnostic(`seed ${seed}`)
  const random = seededRandom(seed)
  const { world, nodes, invoker, add, deploy, invoke } = await setup(t)
  const ids = ['node-a1', 'node-a2', 'node-a3']
  await add(...ids.map((id): [string, object] => [id, { cpuMillis: 2_500 }]))
  for (const name of ['f-0', 'f-1', 'f-2'])
    await deploy(name, { component: component(+name.slice(2)) })
  const script: Script = async (invocation) => {
    const chance = random.float()
    if (chance < 0.05) return invocation.result({ kind: 'fault', message: 'chance' })
    await invocation.start(chance < 0.5)
    await systemClock.sleep(random.below(20))
    if (chance < 0.1) throw new Error('the stream breaks')
    await invocation.stdout('x')
    await invocation.result({ kind: 'exited', exitCode: 0 })
  }
  for (const id of ids) nodes.scripts.set(id, script)
  let over = false
  const chaos = (async () => {
    while (!over) {
      const id = ids[random.below(ids.length)]!
      nodes.lose(id)
      await systemClock.sleep(20)
      nodes.connect(id)
      await systemClock.sleep(80)
    }
  })()
  const answers = await Promise.all(
    Array.from({ length: 150 }, async (_, i) => {
      await systemClock.sleep(random.below(600))
      return invoke(`f-${i % 3}`)
    }),
  )
  over = true
  await chaos
  const known = new Set([undefined, 'node-fault', 'node-lost', 'no-node'])
  for (const answer of answers) assert.ok(known.has(answer.reason), `${answer.reason} ${seed}`)
  const fine = answers.filter(({ ok }) => ok).length
  assert.ok(fine > 75, `${fine} of 150 ended well, ${seed}`)
  assert.equal(invoker.running(), 0)
  assert.equal(nodes.openStreams(), 0)
  assert.deepEqual(await slotDrift(world.engine.db), [], seed)
  assert.equal(await invoker.flushHistory(), 150)
})

test('PL-4 a function without room takes turns with a busy one', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1', { cpuMillis: 1_000 }])
  await deploy('busy')
  await deploy('other', { component: component(1) })
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await systemClock.sleep(10)
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  let over = false
  const busy = Array.from({ length: 3 }, async () => {
    let done = 0
    for (; !over; done++) assert.equal((await invoke('busy')).ok, true)
    return done
  })
  await until('it is busy', () => nodes.opened.length > 5)
  const began = Date.now()
  for (let i = 0; i < 3; i++) assert.equal((await invoke('other')).ok, true)
  assert.ok(Date.now() - began < 9_000, `${Date.now() - began} ms`)
  over = true
  for (const done of await Promise.all(busy)) assert.ok(done > 0)
})

test('FN-3 a node that failed is not the first choice of the next invocation', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'], ['node-a2'])
  await deploy('hello')
  const fault: Script = (invocation) => invocation.result({ kind: 'fault', message: 'broken' })
  const first = (await invoke('hello')).node_id!
  nodes.scripts.set(first, fault)
  assert.notEqual((await invoke('hello')).node_id, first)
  const opened = nodes.opened.length
  for (let i = 0; i < 5; i++) assert.notEqual((await invoke('hello')).node_id, first)
  assert.equal(nodes.opened.length, opened + 5)
})

test('FN-3 output that comes byte by byte is kept whole', async (t) => {
  const { nodes, add, deploy, invoke } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    for (const letter of 'letters, one at a time') await invocation.stdout(letter)
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  assert.equal((await invoke('hello')).stdout, 'letters, one at a time')
})

test('PL-4 many sessions that begin at once cost one look at the slots', async (t) => {
  const { world, nodes, deploy, invoke, add } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  await invoke('hello')
  // The slot belongs to an engine that is gone; its node dials this one.
  await world.engine.db.updateTable('slots').set({ engineId: 'eng_gone' }).execute()
  for (let i = 0; i < 200; i++) nodes.connect('node-a1')
  await until('it is adopted', async () => (await slotsOf(world))[0]?.engineId === world.engine.id)
  assert.equal((await invoke('hello')).ok, true)
  assert.equal((await slotsOf(world)).length, 1)
})

test('FN-3 a caller that hangs up over HTTP ends the invocation on its node', async (t) => {
  const { world, nodes, invoker, add, deploy } = await setup(t)
  await add(['node-a1'])
  await deploy('hello')
  const closed = Promise.withResolvers<void>()
  let begun = false
  nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(false)
    begun = true
    await invocation.closed()
    closed.resolve()
  })
  const caller = new AbortController()
  const key = await world.orgKey('member')
  const call = fetch(`${world.url}/v1/functions/hello/invoke`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ orgId: ORG }),
    signal: caller.signal,
  })
  await until('it runs', () => begun)
  caller.abort()
  await assert.rejects(call)
  await closed.promise
  await until('it is over', () => invoker.running() === 0)
  await invoker.flushHistory()
  const row = await world.engine.db.selectFrom('invocations').selectAll().executeTakeFirstOrThrow()
  assert.deepEqual(
    [row.ok, row.reason, row.error],
    [false, null, 'cancelled: the caller went away'],
  )
})

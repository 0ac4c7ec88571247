// Who is served when there is too little room (PL-4): between orgs, between versions, between engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { slotDrift } from '#store/functions/slots.ts'
import { testTarget } from '#store/test-database.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import type { Invoked } from '#engine/functions/invoker.ts'
import { type Bed, component, invokerBed, request, slotsOf, unitsOf } from '#test/invoker-bed.ts'
import type { Script } from '#test/scripted-nodes.ts'
import { ORG } from '#test/world.ts'

/** Each call takes `ms`. */
const taking =
  (ms: number): Script =>
  async (invocation) => {
    await invocation.start(true)
    await systemClock.sleep(ms)
    await invocation.result({ kind: 'exited', exitCode: 0 })
  }

test('PL-4 AC-6 the call of one org is served at once though another has 1,000 waiting', async (t) => {
  const bed = await invokerBed(t)
  const { world, nodes, invoker } = bed
  await bed.add(['node-a1', { cpuMillis: 2_000 }])
  await bed.deploy('flood', { cpuMillis: 250 })
  const orgId = await world.makeOrg('other')
  await seedNodes(world.engine.db, [nodeRow('node-b1', orgId)], world.engine.id)
  nodes.connect('node-b1')
  const other = world.client(await world.orgKey('member', orgId))
  await other.compute.functions.deploy({ orgId, name: 'single', component: component(1) })
  nodes.scripts.set('node-a1', taking(40))
  const flood = Array.from({ length: 1_000 }, () =>
    invoker.invoke(request(world, { name: 'flood' })),
  )
  let served = 0
  for (const one of flood) void one.then(() => served++)
  await until('some are served', () => served > 5)
  for (let i = 0; i < 3; i++) {
    const before = served
    const single = await other.compute.functions.invoke({ orgId, name: 'single' })
    assert.equal(single.ok, true)
    assert.ok(served - before < 200, `${served - before} of the flood came first`)
  }
  for (const end of await Promise.all(flood)) assert.equal(end.outcome.kind, 'exited')
  assert.equal(await unitsOf(world), 8 + 1)
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('PL-4 versions that flood one node share it, and settle', async (t) => {
  const bed = await invokerBed(t)
  const { world, nodes } = bed
  await bed.add(['node-a1', { cpuMillis: 4_000 }])
  await bed.deploy('first')
  await bed.deploy('second', { component: component(1) })
  nodes.scripts.set('node-a1', taking(10))
  let over = false
  const flood = (name: string) =>
    Array.from({ length: 12 }, async () => {
      let done = 0
      for (; !over; done++) assert.equal((await bed.invoke(name)).ok, true)
      return done
    })
  const first = flood('first')
  await until('the first has it all', async () => (await unitsOf(world)) === 4)
  const second = flood('second')
  const units = async (): Promise<string> =>
    (await slotsOf(world))
      .map((row) => `${row.functionName} ${row.units}`)
      .toSorted()
      .join(', ')
  await until('they share', async () => (await units()) === 'first 2, second 2')
  await systemClock.sleep(700)
  const [one, two] = [nodes.opened.length, await units()]
  assert.equal(two, 'first 2, second 2', 'it stays so')
  over = true
  assert.ok(one > 0)
  for (const done of await Promise.all([...first, ...second])) assert.ok(done > 0)
  assert.deepEqual(await slotDrift(world.engine.db), [])
})

test('PL-4 a big function gets its room though small ones keep taking what is free', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1', { cpuMillis: 2_000 }])
  await bed.deploy('small', { cpuMillis: 250 })
  await bed.deploy('big', { cpuMillis: 1_500, component: component(1) })
  bed.nodes.scripts.set('node-a1', taking(20))
  let over = false
  const small = Array.from({ length: 24 }, async () => {
    while (!over) assert.equal((await bed.invoke('small')).ok, true)
  })
  await until('it is full', async () => (await unitsOf(bed.world)) === 8)
  const began = systemClock.monotonic()
  assert.equal((await bed.invoke('big')).ok, true)
  assert.ok(systemClock.monotonic() - began < 5_000)
  over = true
  await Promise.all(small)
  assert.deepEqual(await slotDrift(bed.world.engine.db), [])
})

test('PL-4 a call that waits is placed within a second of room appearing, without a word to the engine', async (t) => {
  const bed = await invokerBed(t)
  const { db } = bed.world.engine
  // Somebody else has booked it all.
  await bed.add(['node-a1', { usedCpuMillis: 4_000 }])
  await bed.deploy('hello')
  const waiting = bed.invoke('hello')
  await until('it waits', () => bed.invoker.running() === 1)
  await systemClock.sleep(300)
  await sql`update nodes set used_cpu_millis = 0`.execute(db)
  const began = systemClock.monotonic()
  const answer = await waiting
  assert.equal(answer.error, undefined)
  assert.ok(systemClock.monotonic() - began < 1_000)
})

/** As a client does it: the engine that cannot answer says that another may. */
async function atEither(engines: readonly Bed[], name: string): Promise<Invoked> {
  for (let tries = 0; ; tries++) {
    const bed = engines[tries % engines.length]!
    try {
      return await bed.invoker.invoke(request(bed.world, { name }))
    } catch (error) {
      const elsewhere = error instanceof AppError && error.details.reason === 'NODE_ELSEWHERE'
      if (!elsewhere || tries > 200) throw error
      await systemClock.sleep(5)
    }
  }
}

test('PL-4 two engines that place at once neither overbook nor starve, while sessions move between them', async (t) => {
  const seed = `${process.pid}-${Date.now()}`
  t.diagnostic(`seed ${seed}`)
  const random = seededRandom(seed)
  const target = await testTarget(t)
  const a = await invokerBed(t, { target })
  const b = await invokerBed(t, { target, blobs: a.world.engine.blobs })
  const { db } = a.world.engine
  for (const [bed, ids] of [
    [a, ['node-a1', 'node-a2']],
    [b, ['node-b1', 'node-b2']],
  ] as const)
    for (const id of ids) {
      await bed.add([id, { cpuMillis: 2_500, memMb: 2_000 }])
      bed.nodes.scripts.set(id, taking(random.below(20)))
    }
  for (const name of ['f-0', 'f-1', 'f-2'])
    await a.deploy(name, { component: component(Number(name.at(2))) })
  let over = false
  const moves = (async () => {
    let [from, to, epoch] = [a, b, 2]
    while (!over) {
      from.nodes.lose('node-a2')
      const engineId = to.world.engine.id
      await db
        .updateTable('nodeSessions')
        .set({ engineId, epoch })
        .where('nodeId', '=', 'node-a2')
        .execute()
      to.nodes.connect('node-a2')
      await systemClock.sleep(60)
      ;[from, to, epoch] = [to, from, epoch + 1]
    }
  })()
  const overbooked: unknown[] = []
  const watch = (async () => {
    while (!over) {
      const { rows } = await sql`select id from nodes
        where used_cpu_millis > cpu_millis or used_mem_mb > mem_mb`.execute(db)
      overbooked.push(...rows, ...(await slotDrift(db)))
      await systemClock.sleep(10)
    }
  })()
  const answers = await Promise.all(
    Array.from({ length: 200 }, async (_, i) => {
      await systemClock.sleep(random.below(800))
      return atEither(i % 2 === 0 ? [a, b] : [b, a], `f-${i % 3}`)
    }),
  )
  over = true
  await moves
  await watch
  const ends = Map.groupBy(answers, ({ outcome }) => outcome.kind)
  const known = new Set(['exited', 'node-lost'])
  for (const kind of ends.keys()) assert.ok(known.has(kind), `${kind} ${seed}`)
  assert.ok((ends.get('exited')?.length ?? 0) > 150, `${ends.get('exited')?.length} ${seed}`)
  assert.deepEqual(overbooked, [], seed)
  assert.deepEqual(await slotDrift(db), [], seed)
})

test('PL-4 two engines book one version on their own nodes: one row each, and each its own units', async (t) => {
  const target = await testTarget(t)
  const a = await invokerBed(t, { target })
  const b = await invokerBed(t, { target, blobs: a.world.engine.blobs })
  await a.add(['node-a1'])
  await b.add(['node-b1'])
  await a.deploy('hello')
  for (const bed of [a, b]) for (let i = 0; i < 3; i++) assert.ok((await bed.invoke('hello')).ok)
  const rows = await slotsOf(a.world)
  assert.deepEqual(
    rows.map(({ nodeId, engineId, units }) => `${nodeId} ${engineId} ${units}`).toSorted(),
    [`node-a1 ${a.world.engine.id} 1`, `node-b1 ${b.world.engine.id} 1`],
  )
  await b.client.compute.functions.delete({ orgId: ORG, name: 'hello' })
  await until('both give theirs back', async () => (await slotsOf(a.world)).length === 0)
})

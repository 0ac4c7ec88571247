import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { admissible, rank, type Workload } from '#core/placement/place.ts'
import { newId } from '#lib/id.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { connect, type Store, transaction, type Tx } from '#store/connect.ts'
import {
  book as bookUnits,
  type Booking,
  candidates,
  fitsElsewhere,
  placementNodes,
  type SlotSpec,
} from '#store/placement.ts'
import { addVersion } from '#store/functions/functions.ts'
import { functionToRun, slotsOfVersion } from '#store/functions/runnable.ts'
import { adoptSlots, releaseSlotsOfNode, releaseUnits, slotDrift } from '#store/functions/slots.ts'
import { testDatabase } from '#store/test-database.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'

const work = (over: Partial<Workload> = {}): Workload => ({
  orgId: 'org_a',
  runtime: 'wasm',
  cpuMillis: 1_000,
  memMb: 128,
  allowCommunity: false,
  region: null,
  ...over,
})

const slot = (over: Partial<SlotSpec> = {}): SlotSpec => ({
  id: newId('slot', Date.now(), systemRandom),
  orgId: 'org_a',
  functionId: 'fn_1',
  functionName: 'hello',
  versionId: 'fnv_1',
  version: 1,
  engineId: 'eng_a',
  createdAt: new Date(),
  ...over,
})

/** One unit, unless said otherwise. */
const book = (db: Store | Tx, w: Workload, of: Omit<Booking, 'unitsMax'> & { unitsMax?: number }) =>
  bookUnits(db, w, { unitsMax: 1, ...of })

/** The version's slots of the engine on nodes that may run its work now. */
async function usable(db: Store, w: Workload, of = { versionId: 'fnv_1', engineId: 'eng_a' }) {
  const { slots, nodes } = await slotsOfVersion(db, { functionId: 'fn_1', ...of })
  return slots.flatMap((one) => {
    const node = nodes.find(({ id }) => id === one.nodeRecordId)
    return node && admissible(node, w) ? [{ ...one, trustTier: node.trustTier }] : []
  })
}

/** As the engine places: the best few without waiting, then the best with waiting. */
async function place(db: Store, w: Workload, of: { engineId: string; seed: string }) {
  for (let look = 0; look < 10; look++) {
    const found = await candidates(db, w, { engineId: of.engineId, first: [] })
    const ranked = rank(found, w, { random: seededRandom(of.seed), cached: new Set() })
    if (ranked.length === 0) return undefined
    const nodeIds = ranked.slice(0, 3).map((node) => node.id)
    const made = slot({ engineId: of.engineId })
    const booked =
      (await book(db, w, { slot: made, nodeIds, wait: false })) ??
      (await book(db, w, { slot: made, nodeIds, wait: true }))
    if (booked) return booked
  }
  return undefined
}

const used = async (db: Store, id: string) =>
  db
    .selectFrom('nodes')
    .select(['usedCpuMillis', 'usedMemMb'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow()

test('ND-22 booking writes the slot and the atoms in one statement, and releasing gives them back', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  const made = slot()
  const booked = await book(db, work(), { slot: made, nodeIds: ['n1'], wait: false })
  const unit = { cpuMillis: 1_000, memMb: 128 }
  assert.deepEqual(booked, { id: made.id, nodeRecordId: 'n1', units: 1, ...unit })
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 1_000, usedMemMb: 128 })
  assert.deepEqual(
    (await usable(db, work())).map((row) => [row.id, row.units]),
    [[made.id, 1]],
  )
  const of = { nodeRecordId: 'n1', slots: [{ id: made.id, units: 5 }] }
  assert.deepEqual(await releaseUnits(db, { ...of, engineId: 'eng_b' }), [], 'not its slot')
  assert.deepEqual(await releaseUnits(db, { ...of, engineId: 'eng_a' }), [
    { id: made.id, units: 1 },
  ])
  assert.deepEqual(await releaseUnits(db, { ...of, engineId: 'eng_a' }), [], 'gone already')
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 0, usedMemMb: 0 })
})

test('ND-22 a version has one row a node: it grows by as many units as there is room for, and shrinks by units', async (t) => {
  const db = await testDatabase(t)
  const rows = [
    nodeRow('n1', 'org_a', { cpuMillis: 3_500, memMb: 10_000 }),
    nodeRow('n2', 'org_a', { cpuMillis: 60_000, memMb: 300 }),
  ]
  await seedNodes(db, rows, 'eng_a')
  const grow = (node: string, unitsMax: number) =>
    book(db, work(), { slot: slot(), nodeIds: [node], wait: true, unitsMax })
  const first = await grow('n1', 2)
  assert.equal(first?.units, 2)
  const second = await grow('n1', 10)
  assert.deepEqual([second?.units, second?.id], [3, first?.id], '500 millicores are too few')
  assert.equal(await grow('n1', 10), undefined)
  assert.equal((await grow('n2', 10))?.units, 2, 'memory for two')
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 3_000, usedMemMb: 384 })
  assert.equal((await usable(db, work())).length, 2)
  const give = (units: number) =>
    releaseUnits(db, {
      nodeRecordId: 'n1',
      engineId: 'eng_a',
      slots: [{ id: first!.id, units }],
    })
  assert.deepEqual(await give(2), [{ id: first!.id, units: 2 }])
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 1_000, usedMemMb: 128 })
  assert.deepEqual(await slotDrift(db), [])
  assert.deepEqual(await give(2), [{ id: first!.id, units: 1 }])
  assert.equal((await usable(db, work())).length, 1)
  assert.deepEqual(await slotDrift(db), [])
})

test('ND-22 a slot that was booked with other atoms keeps them: its node is charged what the row says', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  await book(db, work({ memMb: 128 }), { slot: slot(), nodeIds: ['n1'], wait: true })
  const grown = await book(db, work({ memMb: 160 }), { slot: slot(), nodeIds: ['n1'], wait: true })
  assert.deepEqual([grown?.units, grown?.memMb], [2, 128])
  assert.deepEqual(await slotDrift(db), [])
})

test('PL-4 D47 forty placers at once never overbook, and fill every node', async (t) => {
  const db = await testDatabase(t)
  const rows = Array.from({ length: 5 }, (_, i) =>
    nodeRow(`n${i}`, 'org_a', { cpuMillis: 3_500, memMb: 10_000 }),
  )
  await seedNodes(db, rows, 'eng_a')
  const results = await Promise.all(
    Array.from({ length: 40 }, (_, i) => place(db, work(), { engineId: 'eng_a', seed: `${i}` })),
  )
  assert.equal(results.filter(Boolean).length, 15, '5 nodes × 3 units of 1,000 in 3,500')
  const over = await sql`select from nodes where used_cpu_millis > cpu_millis`.execute(db)
  assert.equal(over.rows.length, 0)
  assert.deepEqual(await slotDrift(db), [])
})

test('PL-4 a placer that finds every row locked waits for the best and then finds the room taken', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a', { cpuMillis: 1_000 })], 'eng_a')
  const locked = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  const first = transaction(db, async (tx) => {
    assert.ok(await book(tx, work(), { slot: slot(), nodeIds: ['n1'], wait: false }))
    locked.resolve()
    await go.promise
  })
  await locked.promise
  assert.equal(await book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: false }), undefined)
  const waiting = book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: true })
  go.resolve()
  await first
  assert.equal(await waiting, undefined)
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 1_000, usedMemMb: 128 })
  assert.deepEqual(await slotDrift(db), [])
})

test('ND-12 a node cordoned in one transaction receives nothing from another that waits for it', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  const locked = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  const cordon = transaction(db, async (tx) => {
    await tx.updateTable('nodes').set({ cordoned: true }).where('id', '=', 'n1').execute()
    locked.resolve()
    await go.promise
  })
  await locked.promise
  const waiting = book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: true })
  go.resolve()
  await cordon
  assert.equal(await waiting, undefined)
})

test('000-39 a fresh last_seen_at without a live session gives no placement', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a', { lastSeenAt: new Date() })], null)
  const spec = { engineId: 'eng_a', first: [] }
  assert.deepEqual(await candidates(db, work(), spec), [])
  assert.equal(await book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: true }), undefined)
})

test('PL-4 a node whose session is at another engine is told apart from one that does not fit', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_b')
  assert.deepEqual(await candidates(db, work(), { engineId: 'eng_a', first: [] }), [])
  assert.equal(await fitsElsewhere(db, work(), 'eng_a'), true)
  assert.equal(await fitsElsewhere(db, work(), 'eng_b'), false)
  assert.equal(await fitsElsewhere(db, work({ cpuMillis: 16_000 }), 'eng_a'), false)
})

test('000-43 PL-2 slots of a node that drains or became community are not admissible any more', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  await book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: false })
  const set = (over: object) => db.updateTable('nodes').set(over).where('id', '=', 'n1').execute()
  assert.equal((await usable(db, work())).length, 1)
  await set({ noScheduleReasons: ['draining'] })
  assert.equal((await usable(db, work())).length, 0)
  await set({ noScheduleReasons: [], communityFlag: true })
  assert.equal((await usable(db, work())).length, 0)
  const opted = await usable(db, work({ allowCommunity: true }))
  assert.deepEqual(
    opted.map((row) => row.trustTier),
    ['community'],
  )
})

test('ND-9 revoking returns every slot of the node, those of other engines and of bookings under way too', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  const w = work({ cpuMillis: 100, memMb: 80 })
  await Promise.all([
    ...Array.from({ length: 20 }, () => book(db, w, { slot: slot(), nodeIds: ['n1'], wait: true })),
    transaction(db, async (tx) => {
      await releaseSlotsOfNode(tx, 'n1')
      await tx.updateTable('nodes').set({ revokedAt: new Date() }).where('id', '=', 'n1').execute()
    }),
  ])
  assert.deepEqual(await slotDrift(db), [])
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 0, usedMemMb: 0 })
  assert.equal((await db.selectFrom('slots').selectAll().execute()).length, 0)
})

test('PL-4 slots follow the session of their node to another engine', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  await book(db, work(), { slot: slot(), nodeIds: ['n1'], wait: false })
  assert.equal((await adoptSlots(db, 'eng_b')).length, 0)
  await db.updateTable('nodeSessions').set({ engineId: 'eng_b' }).execute()
  assert.equal((await adoptSlots(db, 'eng_b')).length, 1)
  assert.equal((await adoptSlots(db, 'eng_a')).length, 0)
})

test('ND-22 random bookings, releases and revokes from two engines at once leave no drift', async (t) => {
  const seed = `${process.pid}-${Date.now()}`
  t.diagnostic(`seed ${seed}`)
  const db = await testDatabase(t)
  const rows = Array.from({ length: 6 }, (_, i) => nodeRow(`n${i}`, 'org_a'))
  await seedNodes(db, rows, 'eng_a')
  const actor = async (name: string): Promise<void> => {
    const random = seededRandom(`${seed} ${name}`)
    const held: { id: string; nodeRecordId: string }[] = []
    for (let step = 0; step < 40; step++) {
      if (random.float() < 0.6) {
        const kind = random.below(3)
        const w = work({ cpuMillis: 100 + kind * 300, memMb: 80 + kind * 200 })
        const made = slot({ versionId: `fnv_${kind}` })
        const nodeIds = [`n${random.below(6)}`, `n${random.below(6)}`]
        const unitsMax = 1 + random.below(4)
        const wait = random.float() < 0.3
        const booked = await book(db, w, { slot: made, nodeIds, wait, unitsMax })
        if (booked) held.push(booked)
      } else if (random.float() < 0.9) {
        const one = held.splice(random.below(held.length), 1)[0]
        if (!one) continue
        const { nodeRecordId, id } = one
        const slots = [
          { id, units: 1 + random.below(3) },
          { id: 'slot_none', units: 1 },
        ]
        await releaseUnits(db, { nodeRecordId, engineId: 'eng_a', slots })
      } else {
        await transaction(db, (tx) => releaseSlotsOfNode(tx, `n${random.below(6)}`))
      }
    }
  }
  await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(actor))
  assert.deepEqual(await slotDrift(db), [], seed)
  const over = await sql`
    select from nodes where used_cpu_millis > cpu_millis or used_mem_mb > mem_mb`.execute(db)
  assert.equal(over.rows.length, 0, seed)
})

test('ND-27 an explanation reads the org’s own nodes and no revoked one', async (t) => {
  const db = await testDatabase(t)
  await seedNodes(
    db,
    [
      nodeRow('n1', 'org_a'),
      nodeRow('n2', 'org_a', { revokedAt: new Date() }),
      nodeRow('n3', 'org_b'),
    ],
    null,
  )
  const nodes = await placementNodes(db, 'org_a')
  assert.deepEqual(
    nodes.map((node) => node.id),
    ['n1'],
  )
})

test('PL-4 placement asks for nothing that a stopped database could leave hanging', async (t) => {
  const gone = connect({ url: 'postgres://nobody@127.0.0.1:1/none' })
  t.after(() => gone.destroy())
  await assert.rejects(candidates(gone, work(), { engineId: 'eng_a', first: [] }), {
    code: 'UNAVAILABLE',
  })
})

test('FN-7 what an invocation reads is the current version, its artifact, its slots with their nodes, and the quota', async (t) => {
  const db = await testDatabase(t)
  const of = { orgId: 'org_a', name: 'hello', preparer: 'p1', engineId: 'eng_a' }
  assert.equal(await functionToRun(db, of), undefined)
  await seedNodes(db, [nodeRow('n1', 'org_a', { communityFlag: true })], 'eng_a')
  await seedFunction(db)
  await book(db, work({ allowCommunity: true }), { slot: slot(), nodeIds: ['n1'], wait: true })
  await db
    .insertInto('orgQuotas')
    .values({ orgId: 'org_a', invocationsAtOnce: 7, updatedAt: new Date() })
    .execute()
  const found = await functionToRun(db, of)
  assert.deepEqual([found?.fn.versionId, found?.invocationsAtOnce], ['fnv_1', 7])
  assert.deepEqual(found?.artifact, { sha256: 'a'.repeat(64), sizeBytes: 9 })
  const [fresh] = await placementNodes(db, 'org_a')
  assert.deepEqual(found?.nodes, [fresh], 'the same of a node as placement reads')
  const adopted = await adoptSlots(db, 'eng_a')
  assert.deepEqual(found?.slots, adopted, 'the same of a slot as adoption reads')
  assert.equal(adopted[0]?.current, true)
})

async function seedFunction(db: Store): Promise<void> {
  const at = new Date()
  const sha256 = 'c'.repeat(64)
  await db
    .insertInto('components')
    .values({ sha256, sizeBytes: 8, kind: 'component', createdAt: at })
    .execute()
  await db
    .insertInto('artifacts')
    .values({
      componentSha256: sha256,
      preparer: 'p1',
      memMb: 64,
      sha256: 'a'.repeat(64),
      sizeBytes: 9,
      createdAt: at,
    })
    .execute()
  await transaction(db, (tx) =>
    addVersion(tx, {
      orgId: 'org_a',
      name: 'hello',
      functionId: 'fn_1',
      versionId: 'fnv_1',
      componentSha256: sha256,
      sizeBytes: 8,
      cpuMillis: 1_000,
      memMb: 64,
      allowCommunity: true,
      region: null,
      timeoutMs: 1_000,
      fuelMax: null,
      idempotent: false,
      public: false,
      createdBy: 'test',
      now: at,
    }),
  )
}

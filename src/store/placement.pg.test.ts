import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { rank, type Workload } from '#core/placement/place.ts'
import { newId } from '#lib/id.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { connect, type Store, transaction } from '#store/connect.ts'
import { book, candidates, fitsElsewhere, placementNodes, type SlotSpec } from '#store/placement.ts'
import {
  admissibleSlots,
  adoptSlots,
  releaseSlots,
  releaseSlotsOfNode,
  slotDrift,
} from '#store/slots.ts'
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
  assert.deepEqual(booked, { nodeRecordId: 'n1', nodeId: 'n1', trustTier: 'secure' })
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 1_000, usedMemMb: 128 })
  const rows = await admissibleSlots(db, work(), { versionId: 'fnv_1', engineId: 'eng_a' })
  assert.deepEqual(
    rows.map((row) => row.id),
    [made.id],
  )
  const of = { nodeRecordId: 'n1', ids: [made.id] }
  assert.equal(await releaseSlots(db, { ...of, engineId: 'eng_b' }), 0, 'not its slot')
  assert.equal(await releaseSlots(db, { ...of, engineId: 'eng_a' }), 1)
  assert.equal(await releaseSlots(db, { ...of, engineId: 'eng_a' }), 0, 'gone already')
  assert.deepEqual(await used(db, 'n1'), { usedCpuMillis: 0, usedMemMb: 0 })
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
  assert.equal(results.filter(Boolean).length, 15, '5 nodes × 3 slots of 1,000 in 3,500')
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
  const of = { versionId: 'fnv_1', engineId: 'eng_a' }
  const set = (over: object) => db.updateTable('nodes').set(over).where('id', '=', 'n1').execute()
  await set({ noScheduleReasons: ['draining'] })
  assert.equal((await admissibleSlots(db, work(), of)).length, 0)
  await set({ noScheduleReasons: [], communityFlag: true })
  assert.equal((await admissibleSlots(db, work(), of)).length, 0)
  const opted = await admissibleSlots(db, work({ allowCommunity: true }), of)
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
        const w = work({ cpuMillis: 100 + random.below(900), memMb: 80 + random.below(900) })
        const made = slot()
        const nodeIds = [`n${random.below(6)}`, `n${random.below(6)}`]
        const booked = await book(db, w, { slot: made, nodeIds, wait: random.float() < 0.3 })
        if (booked) held.push({ id: made.id, nodeRecordId: booked.nodeRecordId })
      } else if (random.float() < 0.9) {
        const one = held.splice(random.below(held.length), 1)[0]
        if (!one) continue
        const { nodeRecordId } = one
        await releaseSlots(db, { nodeRecordId, engineId: 'eng_a', ids: [one.id, 'slot_none'] })
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

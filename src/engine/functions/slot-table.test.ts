import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SlotRow } from '#store/functions/slots.ts'
import { Ticks } from '#engine/functions/known.ts'
import { type Slot, SlotTable } from '#engine/functions/slot-table.ts'

const row = (over: Partial<SlotRow> = {}): SlotRow => ({
  id: 'slot_1',
  orgId: 'org_a',
  functionId: 'fn_1',
  versionId: 'fnv_1',
  version: 1,
  current: true,
  units: 1,
  cpuMillis: 100,
  memMb: 128,
  nodeRecordId: 'n1',
  ...over,
})

function table() {
  const ticks = new Ticks()
  const slots = new SlotTable(ticks)
  const learn = (rows: SlotRow[], now = 0, readAt = ticks.now): number =>
    slots.learn(rows, { versionId: 'fnv_1', readAt, now })
  const one = (): Slot => [...slots.ofVersion('fnv_1')][0]!
  return { ticks, slots, learn, one }
}

const shape = ({ idle, busy, going, row: { units } }: Slot) => ({ idle, busy, going, units })

test('ND-22 units are taken in the order of their last use, so that the others may fall idle for good', () => {
  const { slots, learn, one } = table()
  learn([row({ units: 3 })], 5)
  for (let i = 0; i < 3; i++) slots.take(one())
  assert.deepEqual(shape(one()), { idle: [], busy: 3, going: 0, units: 3 })
  for (const now of [10, 20, 30]) assert.ok(slots.free(one(), now))
  slots.take(one())
  assert.deepEqual(shape(one()), { idle: [10, 20], busy: 1, going: 0, units: 3 })
  assert.ok(slots.free(one(), 40))
  assert.deepEqual(one().idle, [10, 20, 40])
})

test('ND-22 a row that shrank takes idle units first; busy ones beyond it do not come back', () => {
  const { slots, learn, one } = table()
  learn([row({ units: 3 })])
  for (let i = 0; i < 2; i++) slots.take(one())
  learn([row({ units: 1 })])
  assert.deepEqual(shape(one()), { idle: [], busy: 2, going: 0, units: 1 })
  assert.equal(slots.free(one(), 1), false)
  assert.equal(slots.free(one(), 2), true)
  assert.deepEqual(shape(one()), { idle: [2], busy: 0, going: 0, units: 1 })
})

test('ND-22 a row that is gone is forgotten, and what ran in it comes back to nobody', () => {
  const { slots, learn, one } = table()
  learn([row()])
  const slot = one()
  slots.take(slot)
  learn([])
  assert.equal(slots.size, 0)
  assert.deepEqual([...slots.ofNode('n1')], [])
  assert.equal(slots.free(slot, 1), false)
  assert.equal(learn([row()]), 1)
  assert.deepEqual(shape(one()), { idle: [0], busy: 0, going: 0, units: 1 })
})

test('ND-22 what was read before or during a change of the version’s rows says nothing of it', async () => {
  const { ticks, slots, learn, one } = table()
  learn([row({ units: 2 })])
  const before = ticks.now
  const go = Promise.withResolvers<void>()
  const writing = slots.writing(['fnv_1'], async () => {
    await go.promise
    slots.set(row({ units: 5 }), { readAt: before, now: 0 })
  })
  const during = ticks.now
  learn([row({ units: 9 })], 0, during)
  assert.equal(one().row.units, 2)
  go.resolve()
  await writing
  assert.equal(one().row.units, 5)
  for (const readAt of [before, during]) learn([], 0, readAt)
  assert.equal(one().row.units, 5, 'late answers')
  learn([row({ units: 4 })])
  assert.equal(one().row.units, 4)
})

test('ND-22 changes of one version follow each other, also after one that failed; others do not wait', async () => {
  const { slots } = table()
  const order: string[] = []
  const go = Promise.withResolvers<void>()
  const first = slots.writing(['a'], async () => {
    await go.promise
    order.push('a1')
    throw new Error('no')
  })
  const both = slots.writing(['a', 'b'], async () => void order.push('ab'))
  const last = slots.writing(['b'], async () => void order.push('b'))
  await slots.writing(['c'], async () => void order.push('c'))
  go.resolve()
  await assert.rejects(first, /no/)
  await Promise.all([both, last])
  assert.deepEqual(order, ['c', 'a1', 'ab', 'b'])
})

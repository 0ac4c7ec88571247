import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { fakeClock } from '#lib/fake-clock.ts'
import { BODY_WAIT_MS, BodyRoom } from '#engine/http/body-room.ts'

const settled = (promise: Promise<unknown>): Promise<boolean> =>
  Promise.race([promise.then(() => true), new Promise<false>((go) => setImmediate(go, false))])

test('one caller has at most half, and holds up nobody else', async () => {
  const clock = fakeClock()
  const room = new BodyRoom(100)
  const first = await room.take('a', 30, clock)
  await room.take('a', 20, clock)
  const third = room.take('a', 10, clock)
  assert.equal(await settled(third), false)
  const other = await room.take('b', 50, clock)
  assert.deepEqual(room.status, { bytes: 100, waiting: 1 })
  other()
  assert.equal(await settled(third), false, 'it is over its own half still')
  first()
  assert.equal(await settled(third), true)
  assert.deepEqual(room.status, { bytes: 30, waiting: 0 })
})

test('what finds no room in time is told so, and leaves nothing behind', async () => {
  const clock = fakeClock()
  const room = new BodyRoom(100)
  const give = await room.take('a', 50, clock)
  const late = assert.rejects(room.take('a', 1, clock), { code: 'UNAVAILABLE' })
  await clock.advance(BODY_WAIT_MS)
  await late
  give()
  give()
  assert.deepEqual(room.status, { bytes: 0, waiting: 0 })
  assert.equal(clock.pending(), 0)
})

test('whatever comes and goes, the bounds hold and all comes back', async () => {
  const steps = fc.array(
    fc.record({ holder: fc.constantFrom('a', 'b', 'c'), bytes: fc.integer({ min: 1, max: 50 }) }),
    { maxLength: 40 },
  )
  await fc.assert(
    fc.asyncProperty(steps, async (wanted) => {
      const clock = fakeClock()
      const room = new BodyRoom(100)
      const all = wanted.map(({ holder, bytes }) =>
        room.take(holder, bytes, clock).then((give) => {
          assert.ok(room.status.bytes <= 100)
          setImmediate(give)
        }),
      )
      await Promise.all(all)
      await new Promise((go) => setImmediate(go))
      assert.deepEqual(room.status, { bytes: 0, waiting: 0 })
      assert.equal(clock.pending(), 0)
    }),
  )
})

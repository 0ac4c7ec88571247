import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UPLOADS_AT_ONCE } from '#core/function/limits.ts'
import {
  UPLOAD_WAIT_MS,
  UPLOADS_WAITING_OF_ORG_MAX,
  UploadTurns,
} from '#engine/http/upload-turns.ts'
import { AppError } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'

const stays = new AbortController().signal
const full = (error: unknown): boolean =>
  error instanceof AppError &&
  error.code === 'UNAVAILABLE' &&
  error.details.reason === 'UPLOADS_FULL' &&
  typeof error.details['retryAfterMs'] === 'number'

test('FN-1 two upload at once; the next place is for an org that has none', async () => {
  const clock = fakeClock()
  const turns = new UploadTurns()
  const got: string[] = []
  const take = (orgId: string): Promise<() => void> =>
    turns.take(orgId, { clock, gone: stays }).then((giveBack) => {
      got.push(orgId)
      return giveBack
    })
  assert.equal(UPLOADS_AT_ONCE, 2)
  const [first, second] = [await take('a'), await take('a')]
  const third = take('a')
  const other = take('b')
  await clock.advance(0)
  assert.deepEqual(got, ['a', 'a'])
  first()
  first()
  await other
  assert.deepEqual(got, ['a', 'a', 'b'], 'a place that was given back twice is one place')
  second()
  await third
  assert.deepEqual(got, ['a', 'a', 'b', 'a'])
  assert.equal(clock.pending(), 0)
})

test('FN-1 whoever waits too long, or is one too many, hears when to come back', async () => {
  const clock = fakeClock()
  const turns = new UploadTurns()
  const take = (orgId: string): Promise<() => void> => turns.take(orgId, { clock, gone: stays })
  const giveBack = await take('a')
  await take('a')
  const waiting = Array.from({ length: UPLOADS_WAITING_OF_ORG_MAX }, () =>
    assert.rejects(take('a'), full),
  )
  await assert.rejects(take('a'), full)
  const other = take('b')
  await clock.advance(UPLOAD_WAIT_MS - 1)
  giveBack()
  await other
  await clock.advance(1)
  await Promise.all(waiting)
})

test('FN-1 a client that goes away while it waits keeps no place', async () => {
  const clock = fakeClock()
  const turns = new UploadTurns()
  const giveBack = await turns.take('a', { clock, gone: stays })
  await turns.take('a', { clock, gone: stays })
  const leaving = new AbortController()
  const left = assert.rejects(turns.take('b', { clock, gone: leaving.signal }), /went away/)
  leaving.abort(new Error('the client went away'))
  await left
  giveBack()
  ;(await turns.take('c', { clock, gone: stays }))()
  await assert.rejects(turns.take('b', { clock, gone: leaving.signal }), /went away/)
  assert.equal(clock.pending(), 0)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AppError } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { type Patience, Turns } from '#engine/turns.ts'

const WAITING_OF_ORG = 8
const turns = (): Turns =>
  new Turns({
    places: 2,
    waiting: 16,
    waitingOfOrg: WAITING_OF_ORG,
    full: (count, own) => new AppError('UNAVAILABLE', `${count}${own ? ' of yours' : ''}`),
  })

/** Work that goes on until it is told to end. */
function work(line: Turns, order: string[]) {
  const go = Promise.withResolvers<void>()
  const begin = (name: string, orgId: string, patience?: Patience): Promise<void> =>
    line.inTurn(orgId, async () => (order.push(name), go.promise), patience)
  return { begin, end: () => go.resolve() }
}

test('FN-1 FN-2 one organization cannot take every place: others go beside it, and pass its line', async () => {
  const line = turns()
  const order: string[] = []
  const { begin, end } = work(line, order)
  const hog = Array.from({ length: 1 + WAITING_OF_ORG }, (_, i) => begin(`hog ${i}`, 'hog'))
  await assert.rejects(begin('one too many', 'hog'), { code: 'UNAVAILABLE', message: '9 of yours' })
  await line.inTurn('other', async () => void order.push('other'))
  await line.inTurn('other', async () => void order.push('other again'))
  assert.deepEqual(order, ['hog 0', 'other', 'other again'])
  end()
  await Promise.all(hog)
  assert.deepEqual(
    order.slice(3),
    Array.from({ length: WAITING_OF_ORG }, (_, i) => `hog ${i + 1}`),
  )
})

test('FN-2 work that fails gives its place on', async () => {
  const line = turns()
  const failing = line.inTurn('a', async () => {
    await new Promise((resolve) => setImmediate(resolve))
    throw new Error('broken')
  })
  const next = line.inTurn('a', async () => 'done')
  await assert.rejects(failing, { message: 'broken' })
  assert.equal(await next, 'done')
})

test('FN-1 whoever waits too long, is one too many or goes away keeps no place', async () => {
  const clock = fakeClock()
  const line = turns()
  const order: string[] = []
  const { begin, end } = work(line, order)
  const leaving = new AbortController()
  const patience = { clock, ms: 10_000, gone: leaving.signal }
  const running = [begin('a', 'a'), begin('b', 'b')]
  const waits = Array.from({ length: 16 }, (_, i) =>
    assert.rejects(begin(`c ${i}`, `c${i}`, patience), i === 0 ? { code: 'UNAVAILABLE' } : /./),
  )
  await assert.rejects(begin('d', 'd', patience), { code: 'UNAVAILABLE', message: '18' })
  await clock.advance(10_000)
  await Promise.all(waits)
  const left = assert.rejects(begin('e', 'e', patience), /went away/)
  leaving.abort(new Error('the client went away'))
  await left
  await assert.rejects(begin('e', 'e', patience), /went away/)
  end()
  await Promise.all(running)
  assert.deepEqual(order, ['a', 'b'])
  assert.equal(clock.pending(), 0)
})

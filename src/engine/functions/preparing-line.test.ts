import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PreparingLine, WAITING_OF_ORG_MAX } from '#engine/functions/preparing-line.ts'

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

test('FN-2 one organization cannot take every place: others prepare beside it, and pass its line', async () => {
  const line = new PreparingLine()
  const order: string[] = []
  const go = Promise.withResolvers<void>()
  const slow = (name: string, orgId: string): Promise<void> =>
    line.inTurn(orgId, async () => {
      order.push(name)
      await go.promise
    })
  const hog = Array.from({ length: 1 + WAITING_OF_ORG_MAX }, (_, i) => slow(`hog ${i}`, 'hog'))
  await assert.rejects(slow('one too many', 'hog'), {
    code: 'UNAVAILABLE',
    message: '9 components of this organization are being prepared',
  })
  await line.inTurn('other', async () => void order.push('other'))
  await line.inTurn('other', async () => void order.push('other again'))
  assert.deepEqual(order, ['hog 0', 'other', 'other again'])
  go.resolve()
  await Promise.all(hog)
  assert.deepEqual(
    order.slice(3),
    Array.from({ length: WAITING_OF_ORG_MAX }, (_, i) => `hog ${i + 1}`),
  )
})

test('FN-2 work that fails gives its place on', async () => {
  const line = new PreparingLine()
  const failing = line.inTurn('a', async () => {
    await turn()
    throw new Error('broken')
  })
  const next = line.inTurn('a', async () => 'done')
  await assert.rejects(failing, { message: 'broken' })
  assert.equal(await next, 'done')
})

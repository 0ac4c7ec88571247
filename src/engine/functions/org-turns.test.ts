import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OrgTurns } from '#engine/functions/org-turns.ts'

test('PL-4 orgs take turns at the places: one call does not wait for another org’s thousand', async () => {
  const turns = new OrgTurns(2)
  const order: string[] = []
  const go = Promise.withResolvers<void>()
  let running = 0
  let most = 0
  const work = (name: string) => async () => {
    most = Math.max(most, ++running)
    await go.promise
    order.push(name)
    running--
  }
  const flood = Array.from({ length: 1_000 }, (_, i) => turns.run('a', work(`a${i}`)))
  const single = [turns.run('b', work('b')), turns.run('c', work('c'))]
  go.resolve()
  await Promise.all([...flood, ...single])
  assert.deepEqual(order.slice(0, 6), ['a0', 'a1', 'a2', 'b', 'c', 'a3'])
  assert.equal(order.length, 1_002)
  assert.equal(most, 2)
})

test('PL-4 work that fails gives its place on', async () => {
  const turns = new OrgTurns(1)
  const failing = turns.run('a', () => Promise.reject(new Error('no')))
  const next = turns.run('b', async () => 'done')
  await assert.rejects(failing, /no/)
  assert.equal(await next, 'done')
  assert.equal(await turns.run('a', async () => 'again'), 'again')
})

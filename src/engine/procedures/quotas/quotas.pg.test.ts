// compute.quotas.* (AC-6, AC-4).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { INVOCATIONS_AT_ONCE, INVOCATIONS_AT_ONCE_RANGE } from '#core/function/limits.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import { makeWorld, standInInvoker } from '#test/world.ts'

test('AC-6 AC-4 a platform operator sets another org’s quota; its members read it, nobody else of it sets it', async (t) => {
  const heard: Parameters<Invoker['changed']>[0][] = []
  const world = await makeWorld(t, {
    invoker: () => ({
      ...standInInvoker(() => undefined),
      changed: (change) => void heard.push(change),
    }),
  })
  const acme = await world.makeOrg('acme')
  const owner = world.client(await world.orgKey('owner', acme))
  const guest = world.client(await world.orgKey('guest', acme))
  const other = await world.makeOrg('other')
  const { cookie } = await world.signUpOwner()
  const set = async (body: object): Promise<{ status: number; told: Record<string, unknown> }> => {
    const response = await world.fetch('/v1/quotas', { method: 'PUT', body, headers: { cookie } })
    return { status: response.status, told: (await response.json()) as Record<string, unknown> }
  }
  const read = async (): Promise<unknown> =>
    (await guest.compute.quotas.get({ orgId: 'acme' })).quotas
  assert.deepEqual(await read(), { invocations_at_once: INVOCATIONS_AT_ONCE, source: 'default' })

  const made = await set({ orgId: 'acme', invocationsAtOnce: 5 })
  assert.deepEqual(made, {
    status: 200,
    told: { quotas: { invocations_at_once: 5, source: 'org' } },
  })
  assert.deepEqual(await read(), { invocations_at_once: 5, source: 'org' })
  assert.deepEqual(heard, [{ kind: 'quota', orgId: acme }])
  const { events } = await owner.compute.events.list({ orgId: acme, subject: acme })
  assert.deepEqual(
    events.map(({ kind, actor_kind, data }) => [kind, actor_kind, data['invocationsAtOnce']]),
    [['quotas.set', 'user', 5]],
  )
  // Of the own org as well: the operator is a member of `platform`.
  assert.equal((await set({ orgId: 'platform', invocationsAtOnce: 7 })).status, 200)

  const refused = await owner.compute.quotas.set({ orgId: acme, invocationsAtOnce: 9 }).then(
    () => assert.fail('set'),
    (error: { code: string; message: string; data: Record<string, unknown> }) => error,
  )
  assert.equal(refused.code, 'FORBIDDEN')
  assert.deepEqual(
    [refused.data['reason'], refused.data['needs'], refused.data['has']],
    ['ROLE', 'platform-operator', 'owner'],
  )
  assert.match(String(refused.data['next']), /owner of the platform/)
  await assert.rejects(owner.compute.quotas.get({ orgId: other }), { code: 'FORBIDDEN' })
  const { min, max } = INVOCATIONS_AT_ONCE_RANGE
  for (const invocationsAtOnce of [min - 1, max + 1, 1.5, '5', '', undefined])
    assert.equal((await set({ orgId: 'acme', invocationsAtOnce })).status, 400)
  assert.equal((await set({ orgId: 'nowhere', invocationsAtOnce: 5 })).status, 403)
  assert.deepEqual(await read(), { invocations_at_once: 5, source: 'org' })

  assert.equal((await set({ orgId: acme, invocationsAtOnce: null })).status, 200)
  assert.deepEqual(await read(), { invocations_at_once: INVOCATIONS_AT_ONCE, source: 'default' })
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { makeWorld } from '#test/world.ts'

const orgId = 'platform'

test('whoami says who a key is and a person is', async (t) => {
  const world = await makeWorld(t)
  const acme = await world.makeOrg('acme')
  const me = await world.client(await world.orgKey('member', acme)).access.whoami({})
  assert.equal(me.kind, 'api-key')
  assert.equal(me.name, 'test member')
  assert.equal(me.platform_operator, false)
  assert.deepEqual(me.orgs, [{ id: acme, slug: 'acme', name: 'acme', role: 'member' }])
})

test('000-75 AC-5 a key is made once, listed without its secret, and revoked', async (t) => {
  const world = await makeWorld(t)
  const admin = world.client(await world.orgKey('admin'))
  const { key, secret } = await admin.access.keys.create({ orgId, name: 'ci', role: 'member' })
  assert.match(secret ?? '', /^clt_k_[A-Za-z0-9_-]{43}$/)
  const { id, created_at, ...rest } = key
  assert.match(id, /^key_/)
  assert.ok(Date.parse(created_at) > 0)
  assert.deepEqual(rest, { name: 'ci', role: 'member', expires_at: null, last_used_at: null })
  const mine = world.client(secret ?? '')
  assert.deepEqual(
    (await mine.access.whoami({})).orgs.map(({ role }) => role),
    ['member'],
  )
  const { keys } = await admin.access.keys.list({ orgId })
  assert.deepEqual(keys.map(({ name }) => name).toSorted(), ['ci', 'test admin'])
  const gone = await admin.access.keys.revoke({ orgId, id })
  assert.equal(gone.key.id, id)
  await assert.rejects(mine.access.whoami({}), { code: 'UNAUTHENTICATED' })
  await assert.rejects(admin.access.keys.revoke({ orgId, id }), { code: 'NOT_FOUND' })
  const { events } = await admin.compute.events.list({ orgId, subject: id })
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['key.revoked', 'key.created'],
  )
})

test('D50 a key may do no more than its maker', async (t) => {
  const world = await makeWorld(t)
  const admin = world.client(await world.orgKey('admin'))
  await assert.rejects(admin.access.keys.create({ orgId, name: 'up', role: 'owner' }), {
    code: 'FORBIDDEN',
    message: 'A key may not do more than its maker, who is admin',
  })
  assert.equal(
    (await admin.access.keys.create({ orgId, name: 'same', role: 'admin' })).key.role,
    'admin',
  )
})

test('D40 the key that an Idempotency-Key made is answered without its secret, until it is revoked', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('owner'), 'idempotency-key': 'once' }
  const create = async (): Promise<Record<string, unknown>> =>
    (await (
      await world.fetch('/v1/keys', { body: { orgId, name: 'ci' }, headers })
    ).json()) as Record<string, unknown>
  const first = await create()
  const second = await create()
  assert.match(String(first['secret']), /^clt_k_/)
  assert.equal(second['secret'], null)
  assert.match(String(second['notice']), /^TOKEN_ALREADY_SHOWN/)
  assert.deepEqual(second['key'], first['key'])
  const { id } = first['key'] as { id: string }
  await world.client(headers['x-api-key']).access.keys.revoke({ orgId, id })
  assert.equal((await create())['code'], 'NOT_FOUND')
})

test('AC-5 a key of an org that is gone from its cache is looked up with its own org', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const key = await world.orgKey('guest')
  await world.client(key).access.whoami({})
  await world.engine.db
    .updateTable('organizations')
    .set({ name: 'Renamed' })
    .where('id', '=', world.platformOrgId)
    .execute()
  await clock.advance(10_000)
  assert.equal((await world.client(key).access.whoami({})).orgs[0]?.name, 'Renamed')
})

test('AC-5 an invitation that is repeated shows its link once', async (t) => {
  const world = await makeWorld(t)
  await world.signUpOwner()
  const headers = { 'x-api-key': await world.orgKey('owner'), 'idempotency-key': 'i' }
  const invite = async (): Promise<Record<string, unknown>> =>
    (await (
      await world.fetch('/v1/invitations', { body: { orgId, email: 'a@example.test' }, headers })
    ).json()) as Record<string, unknown>
  const [first, second] = [await invite(), await invite()]
  assert.match(String(first['link']), /\/invitation#[\w-]{32}$/)
  assert.equal(second['link'], null)
  assert.equal(second['id'], first['id'])
  assert.equal(second['expires_at'], first['expires_at'])
})

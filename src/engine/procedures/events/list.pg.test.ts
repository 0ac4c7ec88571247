import assert from 'node:assert/strict'
import { test } from 'node:test'
import { EVENTS_KEPT_MS } from '#core/access/limits.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { prune } from '#engine/loops/prune.ts'
import { makeWorld } from '#test/world.ts'

const orgId = 'platform'

test('OP-6 the trail is newest first, by pages, of one subject where one is named', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const client = world.client(await world.orgKey('admin'))
  for (const nodeId of ['a', 'b', 'c']) {
    await client.compute.nodes.enroll({ orgId, nodeId, trustTier: 'secure' })
    await clock.advance(5)
  }
  const names: unknown[] = []
  let cursor: string | undefined
  do {
    const page = await client.compute.events.list({ orgId, limit: 2, ...(cursor && { cursor }) })
    names.push(...page.events.map((event) => event.data['nodeId']))
    cursor = page.next_cursor ?? undefined
  } while (cursor)
  assert.deepEqual(names, ['c', 'b', 'a'])
  const { node } = await client.compute.nodes.get({ orgId, id: 'b' })
  const { events } = await client.compute.events.list({ orgId, subject: node.id })
  assert.deepEqual(
    events.map((event) => event.data['nodeId']),
    ['b'],
  )
  await client.compute.nodes.setDraining({ orgId, id: 'b', draining: true })
  const named = await client.compute.events.list({ orgId, subject: 'b' })
  assert.deepEqual(
    named.events.map((event) => event.kind),
    ['node.draining', 'node.enrolled'],
  )
  const nobody = await client.compute.events.list({ orgId, subject: 'nobody' })
  assert.deepEqual(nobody.events, [])
})

test('OP-10 events go after ninety days, and not before', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const client = world.client(await world.orgKey('admin'))
  await client.compute.nodes.enroll({ orgId, nodeId: 'a', trustTier: 'secure' })
  await clock.advance(EVENTS_KEPT_MS)
  assert.equal((await prune(world.engine)).events, 0)
  await clock.advance(1)
  assert.equal((await prune(world.engine)).events, 1)
})

test('OP-10 what expired in the identity system’s tables goes a day later', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const owner = await world.signUpOwner()
  await world.fetch('/api/auth/device/code', { body: { client_id: 'ccp' } })
  const client = world.client(await world.orgKey('owner'))
  await client.access.invitations.create({ orgId, email: 'ada@example.test', role: 'guest' })
  const { expired } = await prune(world.engine)
  assert.equal(expired, 0)
  await clock.advance(2 * 24 * 3_600_000)
  // The device code, and the counters of tries.
  assert.ok((await prune(world.engine)).expired >= 2)
  const person = { email: owner.email, password: owner.password }
  assert.equal((await world.fetch('/api/auth/sign-in/email', { body: person })).status, 200)
  await clock.advance(8 * 24 * 3_600_000)
  await prune(world.engine)
  for (const table of ['sessions', 'invitations'] as const)
    assert.deepEqual(await world.engine.db.selectFrom(table).select('id').execute(), [], table)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { makeWorld } from '#test/world.ts'

const orgId = 'platform'

test('000-35 000-36 ND-8 a tier waits for the next REGISTER: until then both are shown and nothing is evicted', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const { node } = await client.compute.nodes.enroll({ orgId, nodeId: 'a1', trustTier: 'secure' })
  const changed = await client.compute.nodes.setTrustTier({
    orgId,
    id: node.id,
    trustTier: 'community',
  })
  assert.equal(changed.node.trust_tier, 'secure')
  assert.equal(changed.node.pending_trust_tier, 'community')
  assert.equal(changed.node.version, 1)
  assert.deepEqual(world.ended, [], 'no session ends')
  const back = await client.compute.nodes.setTrustTier({ orgId, id: 'a1', trustTier: 'secure' })
  assert.equal(back.node.pending_trust_tier, null)
  assert.equal(back.node.version, 2)
  const same = await client.compute.nodes.setTrustTier({ orgId, id: 'a1', trustTier: 'secure' })
  assert.equal(same.node.version, 2)
})

test('000-14 D39 the tier that is shown is the stricter of record and flag', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const { node } = await client.compute.nodes.enroll({ orgId, nodeId: 'a1', trustTier: 'secure' })
  await world.engine.db.updateTable('nodes').set({ communityFlag: true }).execute()
  const shown = await client.compute.nodes.get({ orgId, id: node.id })
  assert.equal(shown.node.trust_tier, 'community')
  await assert.rejects(
    client.compute.nodes.setTrustTier({ orgId, id: node.id, trustTier: 'other' as 'secure' }),
    { code: 'INVALID' },
  )
  await assert.rejects(
    client.compute.nodes.setTrustTier({ orgId, id: 'nobody', trustTier: 'secure' }),
    { code: 'NOT_FOUND' },
  )
})

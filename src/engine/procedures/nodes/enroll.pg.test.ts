import assert from 'node:assert/strict'
import { test } from 'node:test'
import { safe } from '@orpc/client'
import { parseToken } from '#protocol/enroll-token.ts'
import { makeWorld } from '#test/world.ts'

test('000-08 000-17 000-73 enroll makes the record and its token in one call', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const { node, token } = await client.compute.nodes.enroll({
    orgId: 'platform',
    nodeId: 'node-a1',
    label: 'rack 3, spare box',
    region: 'blr1',
    trustTier: 'community',
    contributor: 'Ada',
  })
  assert.equal(parseToken(token ?? '').kind, 'node')
  const { id, site_id, pool_id, created_at, ...rest } = node
  assert.match(id, /^node_/)
  assert.match(site_id, /^site_/)
  assert.match(pool_id, /^pool_/)
  assert.match(created_at, /^\d{4}-\d\d-\d\dT.*Z$/)
  assert.deepEqual(rest, {
    node_id: 'node-a1',
    owner_org_id: world.platformOrgId,
    label: 'rack 3, spare box',
    contributor: 'Ada',
    region: 'blr1',
    role: 'host',
    trust: 'platform',
    trust_tier: 'community',
    pending_trust_tier: null,
    manifest: null,
    used: { cpu_millis: 0, mem_mb: 0 },
    provision_state: 'adopting',
    failure: null,
    maintenance: false,
    cordoned: false,
    connectivity: 'disconnected',
    draining: false,
    no_schedule_reasons: [],
    schedulable: false,
    unschedulable: {
      bucket: 'provisioning',
      message: 'its provision state is adopting; adopted or deployed is needed',
    },
    generation: 0,
    observed_generation: 0,
    identity_generation: 1,
    version: 0,
    agent_version: null,
    session: null,
    last_seen_at: null,
  })
  const { nodes, next_cursor } = await client.compute.nodes.list({ orgId: 'platform' })
  assert.deepEqual(nodes, [node])
  assert.equal(next_cursor, null)
})

test('000-09 000-10 000-14 every missing or wrong field is named in one error', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const { error } = await safe(
    client.compute.nodes.enroll({
      orgId: 'platform',
      nodeId: 'A_b',
      trustTier: 'trusted' as 'secure',
    }),
  )
  assert.ok(error && 'code' in error && error.code === 'INVALID', String(error))
  assert.match(error.message, /nodeId must be lowercase letters/)
  assert.match(error.message, /trustTier must be 'secure'/)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { safe } from '@orpc/client'
import { parseToken } from '#protocol/enroll-token.ts'
import { makeWorld } from '#test/world.ts'

test('ND-1 000-08 000-17 000-73 enroll makes the record and its token in one call', async (t) => {
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
    jail_missing: null,
    session: null,
    last_seen_at: null,
  })
  const { nodes, next_cursor } = await client.compute.nodes.list({ orgId: 'platform' })
  assert.deepEqual(nodes, [node])
  assert.equal(next_cursor, null)
})

test('ND-1 000-09 000-10 000-14 every missing or wrong field is named in one error', async (t) => {
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

type Told = { code: string; message: string; data: { fields: { field: string }[] } }

async function refusal(promise: Promise<unknown>): Promise<Told> {
  const { error } = await safe(promise)
  assert.ok(error && 'code' in error, String(error))
  return error as unknown as Told
}

test('000-09 000-15 000-67 an empty call names every field that it needs', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const told = await refusal(world.client(key).compute.nodes.enroll({} as never))
  assert.equal(told.code, 'INVALID')
  assert.deepEqual(
    told.data.fields.map(({ field }) => field),
    ['orgId', 'nodeId', 'trustTier'],
  )
  assert.match(told.message, /orgId is required/)
  const all = await refusal(
    world.client(key).compute.nodes.enroll({
      orgId: 'platform',
      nodeId: '',
      label: 'x'.repeat(201),
      region: 'Bangalore 1',
      trustTier: 'secure',
      contributor: 'Ada',
    }),
  )
  assert.deepEqual(all.data.fields.map(({ field }) => field).toSorted(), [
    'contributor',
    'label',
    'nodeId',
    'region',
  ])
})

test('000-10 node ids that pass and node ids that do not', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const enroll = (nodeId: string): Promise<unknown> =>
    client.compute.nodes.enroll({ orgId: 'platform', nodeId, trustTier: 'secure' })
  for (const good of ['a', '0', 'node-a1', 'a'.repeat(63)]) await enroll(good)
  for (const bad of ['', '-a', 'A', 'a_b', 'a.b', ' a', 'a\n', 'a'.repeat(64)]) {
    const told = await refusal(enroll(bad))
    assert.equal(told.code, 'INVALID', JSON.stringify(bad))
    assert.match(told.message, /lowercase letters, digits and dashes/)
  }
})

test('000-15 a contributor goes with community only', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const told = await refusal(
    client.compute.nodes.enroll({
      orgId: 'platform',
      nodeId: 'a',
      trustTier: 'secure',
      contributor: 'Ada',
    }),
  )
  assert.equal(told.message, "contributor is accepted with trustTier 'community' only")
})

test('000-08 000-11 a name that is taken is CONFLICT, and a refused call leaves nothing', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const input = { orgId: 'platform', nodeId: 'node-a1', trustTier: 'secure' } as const
  await client.compute.nodes.enroll(input)
  const told = await refusal(client.compute.nodes.enroll(input))
  assert.equal(told.code, 'CONFLICT')
  assert.match(told.message, /node-a1 is enrolled/)
  const { db } = world.engine
  assert.equal((await db.selectFrom('nodes').select('id').execute()).length, 1)
  assert.equal((await db.selectFrom('nodeCredentials').select('nodeId').execute()).length, 1)
  assert.equal((await db.selectFrom('events').select('id').execute()).length, 1)
})

test('000-08 of many enrollments of one name at once, one makes the node', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const answers = await Promise.allSettled(
    Array.from({ length: 8 }, () =>
      client.compute.nodes.enroll({ orgId: 'platform', nodeId: 'one', trustTier: 'secure' }),
    ),
  )
  assert.equal(answers.filter((answer) => answer.status === 'fulfilled').length, 1)
  const { db } = world.engine
  assert.equal((await db.selectFrom('pools').select('id').execute()).length, 1)
  assert.equal((await db.selectFrom('sites').select('id').execute()).length, 1)
})

test('000-02 D33 nodes of an org are its own: tenant-owned, in its own pool, under its own names', async (t) => {
  const world = await makeWorld(t)
  const acme = await world.makeOrg('acme')
  const ours = world.client(await world.orgKey('admin'))
  const theirs = world.client(await world.orgKey('admin', acme))
  const one = await ours.compute.nodes.enroll({
    orgId: 'platform',
    nodeId: 'same',
    trustTier: 'secure',
  })
  const two = await theirs.compute.nodes.enroll({
    orgId: acme,
    nodeId: 'same',
    trustTier: 'secure',
  })
  assert.deepEqual([one.node.trust, two.node.trust], ['platform', 'tenant-owned'])
  assert.notEqual(one.node.pool_id, two.node.pool_id)
  const { nodes } = await theirs.compute.nodes.list({ orgId: 'acme' })
  assert.deepEqual(nodes, [two.node])
})

test('ND-1 000-19 D40 a repeat with the same key gives the record, no token, and says what to do', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const post = async (
    body: object,
  ): Promise<{ status: number; answer: Record<string, unknown> }> => {
    const headers = { 'x-api-key': key, 'idempotency-key': 'key-1' }
    const response = await world.fetch('/v1/nodes', { body, headers })
    return { status: response.status, answer: (await response.json()) as Record<string, unknown> }
  }
  const body = { orgId: 'platform', nodeId: 'node-a1', trustTier: 'secure' }
  const first = await post(body)
  assert.equal(first.status, 200)
  assert.match(String(first.answer['token']), /^clt_n_/)
  assert.equal(first.answer['notice'], undefined)
  const second = await post({ ...body, orgId: world.platformOrgId })
  assert.equal(second.status, 200)
  assert.deepEqual(second.answer['node'], first.answer['node'])
  assert.equal(second.answer['token'], null)
  assert.match(String(second.answer['notice']), /^TOKEN_ALREADY_SHOWN: .*revoke/)
  const other = await post({ ...body, label: 'another body' })
  assert.equal(other.status, 409)
  assert.equal((other.answer['data'] as { reason: string }).reason, 'IDEMPOTENCY_KEY_REUSED')
})

test('000-12 a label is text, whatever it holds', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const label = `<script>alert('x')</script> "\\' ; drop table nodes; -- ☃`
  const { node } = await client.compute.nodes.enroll({
    orgId: 'platform',
    nodeId: 'a',
    label,
    trustTier: 'secure',
  })
  assert.equal(node.label, label)
})

test('AC-3 an org enrolls sixty nodes a minute, and another org its own sixty', async (t) => {
  const world = await makeWorld(t, { config: { enrollsPerMinute: 3 } })
  const acme = await world.makeOrg('acme')
  const ours = world.client(await world.orgKey('admin'))
  const enroll = (client: typeof ours, orgId: string, nodeId: string): Promise<unknown> =>
    client.compute.nodes.enroll({ orgId, nodeId, trustTier: 'secure' })
  for (const nodeId of ['a', 'b', 'c']) await enroll(ours, 'platform', nodeId)
  const told = await refusal(enroll(ours, world.platformOrgId, 'd'))
  assert.equal(told.code, 'RATE_LIMITED')
  await enroll(world.client(await world.orgKey('admin', acme)), acme, 'a')
})

test('OP-6 an enrollment is in the audit trail, with who and from where', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const client = world.client(key)
  const { node } = await client.compute.nodes.enroll({
    orgId: 'platform',
    nodeId: 'a',
    trustTier: 'secure',
  })
  const { events } = await client.compute.events.list({ orgId: 'platform' })
  const [event] = events
  assert.equal(event?.kind, 'node.enrolled')
  assert.equal(event?.subject, node.id)
  assert.equal(event?.ip, '127.0.0.1')
  assert.equal(event?.actor_kind, 'api-key')
  assert.match(event?.request_id ?? '', /^req_/)
  assert.deepEqual(event?.data, { nodeId: 'a', trustTier: 'secure', actor_name: 'test admin' })
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { makeWorld } from '#test/world.ts'

const orgId = 'platform'

test('ND-30 000-71 a list goes by pages that skip nothing, and an unchanged poll is a 304', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const client = world.client(key)
  for (const nodeId of ['c', 'a', 'b', 'e', 'd'])
    await client.compute.nodes.enroll({ orgId, nodeId, trustTier: 'secure' })
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const page = await client.compute.nodes.list({ orgId, limit: 2, ...(cursor && { cursor }) })
    assert.ok(page.nodes.length <= 2)
    seen.push(...page.nodes.map((node) => node.node_id))
    cursor = page.next_cursor ?? undefined
  } while (cursor !== undefined)
  assert.deepEqual(seen, ['c', 'a', 'b', 'e', 'd'])

  const poll = (etag?: string): Promise<Response> =>
    world.fetch(`/v1/nodes?orgId=${orgId}`, {
      headers: { 'x-api-key': key, ...(etag && { 'if-none-match': etag }) },
    })
  const first = await poll()
  const etag = first.headers.get('etag') ?? ''
  assert.equal(first.status, 200)
  const unchanged = await poll(etag)
  assert.equal(unchanged.status, 304)
  assert.equal(await unchanged.text(), '')
  assert.equal((await poll(`W/${etag}, "other"`)).status, 304)
  await client.compute.nodes.setDraining({ orgId, id: 'a', draining: true })
  const changed = await poll(etag)
  assert.equal(changed.status, 200)
  assert.notEqual(changed.headers.get('etag'), etag)
})

test('000-71 limits of a page are checked', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('guest') }
  for (const limit of ['0', '1001', 'x', '1.5']) {
    const response = await world.fetch(`/v1/nodes?orgId=${orgId}&limit=${limit}`, { headers })
    assert.equal(response.status, 400, limit)
    assert.match(((await response.json()) as { message: string }).message, /^limit/)
  }
})

test('AC-4 the platform operator reads the nodes of any org, and changes none', async (t) => {
  const world = await makeWorld(t)
  const { cookie } = await world.signUpOwner()
  const acme = await world.makeOrg('acme')
  const theirs = world.client(await world.orgKey('admin', acme))
  const { node } = await theirs.compute.nodes.enroll({
    orgId: acme,
    nodeId: 'a',
    trustTier: 'secure',
  })
  const get = async (path: string): Promise<number> =>
    (await world.fetch(path, { headers: { cookie } })).status
  assert.equal(await get('/v1/nodes?orgId=acme'), 200)
  assert.equal(await get(`/v1/nodes/${node.id}?orgId=${acme}`), 200)
  assert.equal(await get('/v1/functions?orgId=acme'), 403)
  assert.equal(await get('/v1/nodes?orgId=nobody'), 403)
  const drain = await world.fetch(`/v1/nodes/${node.id}/set-draining`, {
    body: { orgId: acme, draining: true },
    headers: { cookie },
  })
  assert.equal(drain.status, 403)
})

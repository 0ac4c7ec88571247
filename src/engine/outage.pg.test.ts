// The store goes away under a running engine and comes back (OP-9).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from '#store/connect.ts'
import { cuttable } from '#test/cuttable.ts'
import { makeWorld } from '#test/world.ts'

test('OP-9 with the store away writes and reads say store_unavailable, cached keys are known, and all comes back', async (t) => {
  const { target, away, back } = await cuttable(t)
  const db = connect(target, { max: 4, connectTimeoutMs: 2_000 })
  t.after(() => db.destroy())
  const world = await makeWorld(t, { db })
  const owner = await world.signUpOwner()
  const key = { 'x-api-key': await world.orgKey('admin') }
  const cookie = { cookie: owner.cookie }
  const person = { email: owner.email, password: owner.password }
  const calls: [string, Parameters<typeof world.fetch>[1], number][] = [
    ['/v1/whoami', { headers: key }, 200],
    ['/v1/whoami', { headers: cookie }, 503],
    ['/v1/whoami', { headers: { 'x-api-key': 'clt_k_never_seen' } }, 503],
    ['/v1/nodes?orgId=platform', { headers: key }, 503],
    [
      '/v1/nodes',
      { body: { orgId: 'platform', nodeId: 'a', trustTier: 'secure' }, headers: key },
      503,
    ],
    ['/api/auth/sign-in/email', { body: person }, 503],
    ['/setup', { body: { token: 'x', name: 'x', ...person } }, 503],
    ['/ready', {}, 503],
    ['/health', {}, 200],
    ['/sign-in', {}, 200],
  ]
  for (const round of ['before', 'after'] as const) {
    for (const [path, init, status] of calls.slice(0, 2)) {
      assert.equal((await world.fetch(path, init)).status, 200, `${round} ${path} ${status}`)
    }
    if (round === 'after') break
    await away()
    for (const [path, init, status] of calls) {
      const response = await world.fetch(path, init)
      const text = await response.text()
      assert.equal(response.status, status, `${path}: ${text}`)
      if (status === 503 && path !== '/ready')
        assert.match(text, /"reason":"store_unavailable"/, path)
    }
    await back()
  }
  const nodes = await world.client(key['x-api-key']).compute.nodes.list({ orgId: 'platform' })
  assert.deepEqual(nodes.nodes, [], 'what was refused was not done')
})

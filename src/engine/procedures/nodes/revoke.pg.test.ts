import assert from 'node:assert/strict'
import { test } from 'node:test'
import { transaction } from '#store/connect.ts'
import { credentialByToken } from '#store/credentials.ts'
import { hashToken } from '#protocol/enroll-token.ts'
import { makeWorld } from '#test/world.ts'

const orgId = 'platform'

test('000-21 000-45 000-46 ND-9 D34 revoke takes a node out and frees its name; the row and its audit stay', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const enroll = () => client.compute.nodes.enroll({ orgId, nodeId: 'a1', trustTier: 'secure' })
  const first = await enroll()
  const { id } = first.node
  await world.engine.db
    .insertInto('slots')
    .values({
      id: 'slot_1',
      orgId: world.platformOrgId,
      functionId: 'fn_1',
      functionName: 'word-count',
      versionId: 'fnv_1',
      version: 3,
      nodeId: id,
      engineId: 'eng_1',
      units: 2,
      cpuMillis: 250,
      memMb: 128,
      createdAt: new Date(),
    })
    .execute()
  await world.engine.db.updateTable('nodes').set({ usedCpuMillis: 500, usedMemMb: 256 }).execute()
  const { work } = await client.compute.nodes.get({ orgId, id })
  assert.deepEqual(work, [{ function: 'word-count', version: 3, cpu_millis: 500, mem_mb: 256 }])
  const { node } = await client.compute.nodes.revoke({ orgId, id })
  assert.deepEqual(node.used, { cpu_millis: 0, mem_mb: 0 })
  assert.deepEqual(world.ended, [{ nodeRecordId: id, reason: 'NODE_REVOKED', retry: false }])
  assert.deepEqual((await client.compute.nodes.list({ orgId })).nodes, [])
  for (const gone of [id, 'a1'])
    await assert.rejects(client.compute.nodes.get({ orgId, id: gone }), { code: 'NOT_FOUND' })
  await assert.rejects(client.compute.nodes.revoke({ orgId, id }), { code: 'NOT_FOUND' })
  const row = await world.engine.db.selectFrom('nodes').selectAll().executeTakeFirstOrThrow()
  assert.ok(row.revokedAt)
  assert.deepEqual([row.usedCpuMillis, row.usedMemMb], [0, 0])
  assert.deepEqual(await world.engine.db.selectFrom('slots').select('id').execute(), [])
  const second = await enroll()
  assert.notEqual(second.node.id, id)
  const opens = async (
    token: string | null,
  ): Promise<{ id: string; revoked: boolean } | undefined> => {
    const found = await transaction(world.engine.db, (tx) =>
      credentialByToken(tx, Buffer.from(hashToken(token ?? ''), 'hex')),
    )
    return found && { id: found.nodeRecordId, revoked: found.revoked }
  }
  assert.deepEqual(await opens(first.token), { id, revoked: true })
  assert.deepEqual(await opens(second.token), { id: second.node.id, revoked: false })
  const { events } = await client.compute.events.list({ orgId, subject: id })
  assert.deepEqual(
    events.map((event) => event.kind),
    ['node.revoked', 'node.enrolled'],
  )
})

test('a revoke that is refused ends no session', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  await client.compute.nodes.enroll({ orgId, nodeId: 'a1', trustTier: 'secure' })
  await assert.rejects(client.compute.nodes.revoke({ orgId, id: 'a1', version: 7 }), {
    code: 'CONFLICT',
  })
  assert.deepEqual(world.ended, [])
})

test('ND-5 D36 revokeIdentity gives the next generation a token, once, and ends the session', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const client = world.client(key)
  const { node, token } = await client.compute.nodes.enroll({
    orgId,
    nodeId: 'a1',
    trustTier: 'secure',
  })
  const again = async (): Promise<Record<string, unknown>> => {
    const response = await world.fetch(`/v1/nodes/${node.id}/revoke-identity`, {
      body: { orgId },
      headers: { 'x-api-key': key, 'idempotency-key': 'once' },
    })
    return (await response.json()) as Record<string, unknown>
  }
  const first = await again()
  assert.match(String(first['token']), /^clt_n_/)
  assert.notEqual(first['token'], token)
  assert.equal((first['node'] as { identity_generation: number }).identity_generation, 2)
  const second = await again()
  assert.equal(second['token'], null)
  assert.match(String(second['notice']), /TOKEN_ALREADY_SHOWN/)
  assert.deepEqual(world.ended, [
    { nodeRecordId: node.id, reason: 'IDENTITY_REVOKED', retry: false },
  ])
  const rows = await world.engine.db
    .selectFrom('nodeCredentials')
    .select(['identityGeneration', 'publicKey'])
    .orderBy('identityGeneration')
    .execute()
  assert.deepEqual(rows, [
    { identityGeneration: 1, publicKey: null },
    { identityGeneration: 2, publicKey: null },
  ])
})

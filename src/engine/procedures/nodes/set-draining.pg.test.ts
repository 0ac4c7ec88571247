import assert from 'node:assert/strict'
import { test } from 'node:test'
import { makeWorld, type Client, type World } from '#test/world.ts'

const orgId = 'platform'

async function enrolled(
  t: Parameters<typeof makeWorld>[0],
): Promise<{ world: World; client: Client; id: string }> {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('admin'))
  const { node } = await client.compute.nodes.enroll({ orgId, nodeId: 'a1', trustTier: 'secure' })
  return { world, client, id: node.id }
}

test('000-43 D13 draining adds one reason and nothing else; 000-44 false takes it away and wakes who waits', async (t) => {
  const { world, client, id } = await enrolled(t)
  await world.engine.db
    .updateTable('nodes')
    .set({
      provisionState: 'adopted',
      connectivity: 'connected',
      observedGeneration: 1,
      noScheduleReasons: ['DiskPressure'],
    })
    .execute()
  const on = await client.compute.nodes.setDraining({ orgId, id, draining: true })
  assert.equal(on.node.draining, true)
  assert.deepEqual(on.node.no_schedule_reasons, ['DiskPressure', 'draining'])
  assert.equal(on.node.cordoned, false)
  assert.equal(world.woken(), 1)
  const off = await client.compute.nodes.setDraining({ orgId, id: 'a1', draining: false })
  assert.deepEqual(off.node.no_schedule_reasons, ['DiskPressure'])
  assert.equal(world.woken(), 2)
  assert.equal(off.node.version, 2)
})

test('D41 a version that is stale is CONFLICT with the current one, and changes nothing', async (t) => {
  const { client, id } = await enrolled(t)
  const first = await client.compute.nodes.setDraining({ orgId, id, draining: true, version: 0 })
  assert.equal(first.node.version, 1)
  await assert.rejects(
    client.compute.nodes.setDraining({ orgId, id, draining: false, version: 0 }),
    (error: { code: string; data: { version: number; reason: string } }) => {
      assert.equal(error.code, 'CONFLICT')
      assert.deepEqual([error.data.reason, error.data.version], ['STALE_VERSION', 1])
      return true
    },
  )
  const { node } = await client.compute.nodes.get({ orgId, id })
  assert.equal(node.draining, true)
})

test('setDraining to what it is already changes neither version nor audit', async (t) => {
  const { client, id } = await enrolled(t)
  const same = await client.compute.nodes.setDraining({ orgId, id, draining: false })
  assert.equal(same.node.version, 0)
  const { events } = await client.compute.events.list({ orgId })
  assert.deepEqual(
    events.map((event) => event.kind),
    ['node.enrolled'],
  )
})

test('of many changes made for one version, one is taken', async (t) => {
  const { client, id } = await enrolled(t)
  const answers = await Promise.allSettled(
    Array.from({ length: 6 }, () =>
      client.compute.nodes.setDraining({ orgId, id, draining: true, version: 0 }),
    ),
  )
  assert.equal(answers.filter((answer) => answer.status === 'fulfilled').length, 1)
})

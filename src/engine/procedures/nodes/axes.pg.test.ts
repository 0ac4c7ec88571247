// The axes of a node through the API (ND-10, ND-13), on rows as enrolling and registering would have left them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CONNECTIVITIES, PROVISION_STATES, type PlacementNode } from '#core/node/node.ts'
import { schedulable } from '#core/node/schedulable.ts'
import { endSessions, markUnreachable } from '#store/sessions.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { makeWorld } from '#test/world.ts'

const REASONS = [[], ['draining'], ['unreachable'], ['draining', 'unreachable']]
const BOTH = [false, true]

test('ND-10 every combination of the axes can stand, is shown as it is, and implies no other', async (t) => {
  const world = await makeWorld(t)
  const orgId = world.platformOrgId
  const axes = PROVISION_STATES.flatMap((provisionState) =>
    CONNECTIVITIES.flatMap((connectivity) =>
      BOTH.flatMap((maintenance) =>
        BOTH.flatMap((cordoned) =>
          REASONS.map((noScheduleReasons) => ({
            provisionState,
            connectivity,
            maintenance,
            cordoned,
            noScheduleReasons,
          })),
        ),
      ),
    ),
  )
  assert.equal(axes.length, 13 * 4 * 2 * 2 * 4)
  const rows = axes.map((over, at) => nodeRow(`n${String(at).padStart(4, '0')}`, orgId, over))
  await seedNodes(world.engine.db, rows, null)
  const client = world.client(await world.orgKey('guest'))
  const { nodes } = await client.compute.nodes.list({ orgId })
  assert.equal(nodes.length, axes.length)
  for (const [at, node] of nodes.entries()) {
    const wanted = axes[at]!
    assert.deepEqual(
      {
        provisionState: node.provision_state,
        connectivity: node.connectivity,
        maintenance: node.maintenance,
        cordoned: node.cordoned,
        noScheduleReasons: node.no_schedule_reasons,
      },
      wanted,
    )
    assert.equal(node.draining, wanted.noScheduleReasons.includes('draining'))
    const verdict = schedulable({ ...(rows[at] as unknown as PlacementNode), ...wanted })
    assert.equal(node.schedulable, verdict.ok)
    assert.equal(node.unschedulable?.bucket, verdict.ok ? undefined : verdict.bucket)
  }
})

test('ND-10 who ends a session writes connectivity and its own reason, and nothing else of the node', async (t) => {
  const world = await makeWorld(t)
  const orgId = world.platformOrgId
  const { db, id: engineId } = world.engine
  const odd = {
    provisionState: 'failed',
    maintenance: true,
    cordoned: true,
    noScheduleReasons: ['DiskPressure', 'draining'],
  }
  await seedNodes(db, [nodeRow('odd', orgId, odd)], engineId)
  const client = world.client(await world.orgKey('guest'))
  const shown = async () => (await client.compute.nodes.get({ orgId, id: 'odd' })).node
  const before = await shown()
  const key = { nodeRecordId: 'odd', epoch: 1 }
  const now = world.engine.clock.now()
  await endSessions(db, [key], { connectivity: 'disconnected', now })
  const left = await shown()
  assert.notEqual(left.session?.disconnected_at, null)
  const { session } = left
  assert.deepEqual(left, {
    ...before,
    session,
    connectivity: 'disconnected',
    unschedulable: before.unschedulable,
  })
  await markUnreachable(db, [key], now)
  assert.deepEqual(await shown(), {
    ...left,
    connectivity: 'unreachable',
    no_schedule_reasons: ['DiskPressure', 'draining', 'unreachable'],
  })
})

test('ND-13 get shows a node with its axes, session, work and commands, and neither power nor keys', async (t) => {
  const world = await makeWorld(t)
  const orgId = world.platformOrgId
  const { db, id: engineId } = world.engine
  await seedNodes(db, [nodeRow('a1', orgId, { agentVersion: '1.2.3' })], engineId)
  const createdAt = new Date('2026-01-02T00:00:00Z')
  const slot = { orgId, functionId: 'fn_1', functionName: 'words', versionId: 'fnv_1', version: 3 }
  const room = { nodeId: 'a1', engineId, units: 1, cpuMillis: 250, memMb: 128, createdAt }
  await db
    .insertInto('slots')
    .values({ id: 'slot_1', ...slot, ...room })
    .execute()
  const command = { orgId, nodeId: 'a1', kind: 'diag.wasm', state: 'succeeded', output: 'fine' }
  await db
    .insertInto('commands')
    .values({ id: 'cmd_1', ...command, deadlineMs: 30_000, createdAt })
    .execute()
  const client = world.client(await world.orgKey('guest'))
  const found = await client.compute.nodes.get({ orgId, id: 'a1' })
  assert.deepEqual(found.work, [{ function: 'words', version: 3, cpu_millis: 250, mem_mb: 128 }])
  assert.deepEqual(found.commands, [
    {
      id: 'cmd_1',
      kind: 'diag.wasm',
      state: 'succeeded',
      output: 'fine',
      created_at: createdAt.toISOString(),
    },
  ])
  const { node } = found
  assert.deepEqual(node.session, {
    epoch: 1,
    gateway_id: engineId,
    transport: 'tls',
    disconnected_at: null,
    connected_at: '2026-01-01T00:00:00.000Z',
  })
  assert.deepEqual(
    [node.owner_org_id, node.role, node.trust, node.trust_tier, node.agent_version],
    [orgId, 'host', 'tenant-owned', 'secure', '1.2.3'],
  )
  assert.deepEqual([node.generation, node.observed_generation, node.identity_generation], [1, 1, 1])
  assert.doesNotMatch(Object.keys(node).join(), /power|key|token|adapter|driver|secret/)
})

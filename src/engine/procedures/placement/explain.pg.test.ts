import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { invokerBed } from '#test/invoker-bed.ts'
import { makeWorld, ORG } from '#test/world.ts'

test('PL-3 an empty fleet says what to enroll', async (t) => {
  const world = await makeWorld(t)
  const { placement } = world.client(await world.orgKey('guest')).compute
  assert.deepEqual(await placement.explain({ orgId: ORG, memMb: 16, region: 'blr1' }), {
    placeable: false,
    summary:
      'no node can run this: enroll one with the wasm runtime in region blr1, 1000 millicores and 80 MiB',
    nodes: [],
  })
})

test('PL-3 each node with its first failing check, what fits first, then the nearest miss', async (t) => {
  const world = await makeWorld(t)
  const { engine, platformOrgId: org } = world
  const other = await world.makeOrg('other')
  await seedNodes(
    engine.db,
    [
      nodeRow('far', org, { runtimes: null, cpuMillis: null, memMb: null }),
      nodeRow('community', org, { communityFlag: true, contributor: 'somebody' }),
      nodeRow('draining', org, { noScheduleReasons: ['draining'] }),
      nodeRow('small', org, { memMb: 64 }),
      nodeRow('fits', org),
      nodeRow('revoked', org, { revokedAt: new Date() }),
      nodeRow('foreign', other),
    ],
    engine.id,
  )
  const { placement } = world.client(await world.orgKey('guest')).compute
  const { placeable, summary, nodes } = await placement.explain({ orgId: ORG })
  assert.equal(placeable, true)
  assert.equal(summary, '1 of 5 nodes can run this now')
  assert.deepEqual(
    nodes.map(({ node_id, fits, check, bucket }) => [node_id, fits, check, bucket]),
    [
      ['fits', true, null, null],
      ['small', false, 'memory', null],
      ['draining', false, 'schedulable', 'unhealthy'],
      ['community', false, 'trust-tier', null],
      ['far', false, 'capability', null],
    ],
  )
  const opted = await placement.explain({ orgId: ORG, allowCommunity: true })
  assert.equal(opted.nodes.filter(({ fits }) => fits).length, 2)
  const machine = await placement.explain({ orgId: ORG, runtime: 'microvm' })
  assert.equal(machine.placeable, false)
  assert.match(machine.summary, /^none of 5 nodes can run this; the nearest is .* not microvm$/)
})

test('PL-3 of a deployed function by its name, over REST; an unknown one is NOT_FOUND', async (t) => {
  const world = await makeWorld(t, {
    invoker: (engine) => {
      const artifact = new Uint8Array(8)
      const prepared = { ok: true, artifact, kind: 'component', preparer: 'test' } as const
      return createInvoker({ ...engine, prepare: async () => prepared })
    },
  })
  const key = await world.orgKey('member')
  const component = Buffer.from('0061736d0d000100', 'hex').toString('base64')
  const { functions } = world.client(key).compute
  await functions.deploy({ orgId: ORG, name: 'hello', component, cpuMillis: 5_000 })
  await seedNodes(world.engine.db, [nodeRow('node-a1', world.platformOrgId)], world.engine.id)
  const headers = { authorization: `Bearer ${key}` }
  const get = (query: string) =>
    world.fetch(`/v1/placement/explain?orgId=${ORG}&${query}`, { headers })
  const found = (await (await get('name=hello')).json()) as { summary: string }
  assert.equal(
    found.summary,
    'the only node, node-a1, cannot run this: 5000 millicores are wanted, it offers 4000 in all',
  )
  assert.equal((await get('name=nothing')).status, 404)
  assert.equal((await get('cpuMillis=99')).status, 400)
  assert.equal((await get('allowCommunity=true&memMb=64')).status, 200)
})

test('PL-3 a node whose room the function itself holds can run it', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1', { cpuMillis: 1_000 }])
  await bed.deploy('hello', { cpuMillis: 1_000 })
  await bed.deploy('other', { cpuMillis: 1_000 })
  assert.equal((await bed.invoke('hello')).ok, true)
  const { placement } = bed.world.client(await bed.world.orgKey('guest')).compute
  const summaryOf = async (name: string): Promise<string> =>
    (await placement.explain({ orgId: ORG, name })).summary
  assert.equal(await summaryOf('hello'), '1 of 1 nodes can run this now')
  assert.match(await summaryOf('other'), /cannot run this: 1000 millicores are wanted, 0 of 1000/)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HISTORY_KEPT_MS, VERSIONS_KEPT } from '#core/function/limits.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { pruneFunctions } from '#engine/loops/history-prune.ts'
import { insertInvocations, type InvocationRow } from '#store/functions/invocations.ts'
import { makeWorld, ORG, type World } from '#test/world.ts'

/** Bytes of a component's preamble and one more: a component each, as far as this preparer goes. */
const component = (other: number): string =>
  Buffer.from([0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0, other]).toString('base64')

const withPreparer = (engine: Parameters<typeof createInvoker>[0]) =>
  createInvoker({
    ...engine,
    prepare: async (bytes) => ({
      ok: true,
      artifact: Buffer.concat([bytes, Buffer.from('prepared')]),
      kind: 'component',
      preparer: 'test',
    }),
  })

const row = (id: string, at: number): InvocationRow => ({
  id,
  orgId: 'org',
  functionId: 'fn',
  functionName: 'hello',
  version: 1,
  nodeId: null,
  nodeName: null,
  trustTier: null,
  startedAt: new Date(at),
  durationMs: 1,
  ok: true,
  exitCode: 0,
  reason: null,
  error: null,
  memPeakMb: null,
  fuelUsed: null,
  stdoutBytes: 0,
  stderrBytes: 0,
})

const count = async ({ engine }: World, table: 'components' | 'artifacts' | 'functionVersions') =>
  (await engine.db.selectFrom(table).selectAll().execute()).length

test('FN-7 history older than seven days goes, and nothing younger', async (t) => {
  const { engine } = await makeWorld(t)
  const clock = fakeClock()
  const now = clock.now()
  await insertInvocations(engine.db, [
    row('inv_1', now - HISTORY_KEPT_MS - 1),
    row('inv_2', now - HISTORY_KEPT_MS),
    row('inv_3', now),
  ])
  await insertInvocations(engine.db, [row('inv_3', now)])
  const pruned = await pruneFunctions({ ...engine, clock }, [])
  assert.equal(pruned.invocations, 1)
  const left = await engine.db.selectFrom('invocations').select('id').orderBy('id').execute()
  assert.deepEqual(
    left.map(({ id }) => id),
    ['inv_2', 'inv_3'],
  )
})

test('OP-10 after many deploys the newest versions stay, the current one always, and unused bytes go', async (t) => {
  const clock = fakeClock()
  const world = await makeWorld(t, { clock, invoker: withPreparer })
  const { engine } = world
  const { functions } = world.client(await world.orgKey('member')).compute
  const made = VERSIONS_KEPT + 5
  for (let i = 0; i < made; i++)
    await functions.deploy({ orgId: ORG, name: 'hello', component: component(i) })
  await functions.rollback({ orgId: ORG, name: 'hello', version: 2 })
  const [old] = await engine.db
    .selectFrom('functionVersions')
    .select('componentSha256')
    .where('version', '=', 1)
    .execute()
  const young = await pruneFunctions(engine, [])
  assert.deepEqual([young.versions, young.unused], [4, []], 'what is young may be about to be used')
  await clock.advance(3_600_001)
  const first = await pruneFunctions(engine, [])
  assert.equal(first.unused.length, 4)
  assert.equal(first.blobs, 0, 'an invocation may still want them')
  // One of them is deployed again meanwhile.
  await functions.deploy({ orgId: ORG, name: 'other', component: component(3) })
  const second = await pruneFunctions(engine, first.unused)
  assert.equal(second.blobs, 6, 'three components and their artifacts')
  assert.equal(await count(world, 'functionVersions'), VERSIONS_KEPT + 2)
  assert.equal(await count(world, 'components'), made - 3)
  assert.equal(await count(world, 'artifacts'), made - 3)
  assert.equal(await engine.blobs.has(old?.componentSha256 ?? ''), false)
  for (const { sha256 } of await engine.db.selectFrom('components').select('sha256').execute())
    assert.ok(await engine.blobs.has(sha256))
  for (const { sha256 } of await engine.db.selectFrom('artifacts').select('sha256').execute())
    assert.ok(await engine.blobs.has(sha256))
  await functions.rollback({ orgId: ORG, name: 'hello', version: 6 })
})

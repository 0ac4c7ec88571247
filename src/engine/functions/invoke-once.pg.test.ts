// An invocation with an Idempotency-Key runs at most once (D51), whatever becomes of its caller, its engine or its store.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { ANSWER_KEPT_MAX } from '#core/function/limits.ts'
import { until } from '#lib/until.ts'
import { releaseKeysOfEngine } from '#store/idempotency.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { cuttable } from '#test/cuttable.ts'
import { type Bed, gate, invokerBed } from '#test/invoker-bed.ts'
import { ORG } from '#test/world.ts'

const Answer = z.looseObject({
  ok: z.boolean().optional(),
  reason: z.string().optional(),
  stdout: z.string().optional(),
  data: z.looseObject({ reason: z.string() }).optional(),
})

async function caller(bed: Bed) {
  const key = await bed.world.orgKey('member')
  return async (idempotencyKey: string, body: object = {}) => {
    const response = await bed.world.fetch('/v1/functions/hello/invoke', {
      body: { orgId: ORG, ...body },
      headers: { authorization: `Bearer ${key}`, 'idempotency-key': idempotencyKey },
    })
    return { status: response.status, ...Answer.parse(await response.json()) }
  }
}

test('D51 an invocation that is sent twice with one key runs once, and answers the same: any bytes', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await invocation.stdout(Uint8Array.of(0, 104, 105, 0xff, 0))
    await invocation.result({ kind: 'exited', exitCode: 9 })
  })
  const invoke = await caller(bed)
  const first = await invoke('once')
  assert.deepEqual([first.status, first.stdout], [200, '\0hi\uFFFD\0'])
  assert.deepEqual(await invoke('once'), first)
  assert.equal(bed.nodes.opened.length, 1)
  const other = await invoke('once', { args: ['x'] })
  assert.deepEqual([other.status, other.data?.reason], [409, 'IDEMPOTENCY_KEY_REUSED'])
  assert.equal((await invoke('another')).status, 200)
  assert.equal(bed.nodes.opened.length, 2)
})

test('D51 what was refused before it ran gives its key back', async (t) => {
  const bed = await invokerBed(t)
  const invoke = await caller(bed)
  assert.equal((await invoke('once')).status, 404)
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  assert.equal((await invoke('once')).ok, true)
})

test('D51 FN-6 what acted and could not be done again elsewhere is told as it ended, and keeps its key', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('hello', { idempotent: true })
  const { engine, platformOrgId } = bed.world
  await seedNodes(engine.db, [nodeRow('node-a2', platformOrgId)], 'eng_other')
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(false)
    bed.nodes.lose(invocation.nodeRecordId)
  })
  const invoke = await caller(bed)
  const first = await invoke('once')
  assert.deepEqual([first.status, first.ok, first.reason], [200, false, 'node-lost'])
  bed.nodes.connect('node-a1')
  assert.deepEqual(await invoke('once'), first)
  assert.equal(bed.nodes.opened.length, 1)
  await bed.invoker.flushHistory()
  const rows = await engine.db.selectFrom('invocations').select('reason').execute()
  assert.deepEqual(rows, [{ reason: 'node-lost' }])
})

test('D51 while it runs a repetition hears so; once its engine died nobody knows, and it is not run again', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  const hold = gate()
  bed.nodes.scripts.set('node-a1', hold.script)
  const invoke = await caller(bed)
  const first = invoke('once')
  await until('it runs', () => hold.begun === 1)
  assert.equal((await invoke('once')).data?.reason, 'IDEMPOTENCY_IN_PROGRESS')
  // As the engine's program begins again after a kill -9: nothing of it is in memory, and its claims are given back.
  const { claims, db, id } = bed.world.engine
  const held = new Map(claims)
  claims.clear()
  assert.equal(await releaseKeysOfEngine(db, id), 0, 'this one is not')
  for (let i = 0; i < 2; i++) {
    const again = await invoke('once')
    assert.deepEqual([again.status, again.data?.reason], [409, 'IDEMPOTENCY_OUTCOME_UNKNOWN'])
  }
  assert.equal((await invoke('once', { args: ['x'] })).data?.reason, 'IDEMPOTENCY_KEY_REUSED')
  for (const [name, count] of held) claims.set(name, count)
  hold.open()
  assert.equal((await first).ok, true)
  assert.equal(bed.nodes.opened.length, 1)
})

test('D51 another engine does not run it again either, however long it has been', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  const hold = gate()
  bed.nodes.scripts.set('node-a1', hold.script)
  const invoke = await caller(bed)
  const first = invoke('once')
  await until('it runs', () => hold.begun === 1)
  const { db } = bed.world.engine
  await db.updateTable('idempotencyKeys').set({ engineId: 'eng_other' }).execute()
  assert.equal((await invoke('once')).data?.reason, 'IDEMPOTENCY_IN_PROGRESS')
  const createdAt = new Date(Date.now() - 21 * 60_000)
  await db.updateTable('idempotencyKeys').set({ createdAt }).execute()
  assert.equal((await invoke('once')).data?.reason, 'IDEMPOTENCY_OUTCOME_UNKNOWN')
  hold.open()
  assert.equal((await first).ok, true)
  assert.equal(bed.nodes.opened.length, 1)
})

test('D51 an answer that is too large to keep is told as such, and not made again', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    const [size = '0'] = invocation.header.args
    for (let left = Number(size); left > 0; left -= 1024)
      await invocation.stdout(Buffer.alloc(Math.min(left, 1024), 'x'))
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  const invoke = await caller(bed)
  const small = { args: [String(ANSWER_KEPT_MAX - 1_024)] }
  const first = await invoke('small', small)
  assert.deepEqual(await invoke('small', small), first)
  const large = { args: [String(ANSWER_KEPT_MAX)] }
  assert.equal((await invoke('once', large)).ok, true)
  const again = await invoke('once', large)
  assert.deepEqual([again.status, again.data?.reason], [409, 'IDEMPOTENCY_NOT_KEPT'])
  assert.equal(bed.nodes.opened.length, 2)
})

test('D51 a store that goes away while it runs costs the key, not the answer', async (t) => {
  const { target, away, back } = await cuttable(t)
  const bed = await invokerBed(t, { target })
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  const hold = gate()
  bed.nodes.scripts.set('node-a1', hold.script)
  const invoke = await caller(bed)
  const first = invoke('once')
  await until('it runs', () => hold.begun === 1)
  await away()
  hold.open()
  assert.equal((await first).ok, true)
  await back()
  await until('the store answers', async () => (await bed.world.fetch('/ready')).ok)
  assert.equal((await invoke('once')).data?.reason, 'IDEMPOTENCY_OUTCOME_UNKNOWN')
  assert.equal(bed.nodes.opened.length, 1)
})

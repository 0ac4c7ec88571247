// What the invoker remembers, and how it hears that it is so no more: two engines on one database, a listener that is
// cut, a store that is away.
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { connect } from '#store/connect.ts'
import { slotDrift } from '#store/functions/slots.ts'
import { endSessionsOfEngine } from '#store/sessions.ts'
import { testTarget } from '#store/test-database.ts'
import { cuttable } from '#test/cuttable.ts'
import { type Bed, component, gate, invokerBed, request, slotsOf } from '#test/invoker-bed.ts'
import { ORG } from '#test/world.ts'

/** Engine A holds the node's session; B is another engine of the same platform. */
async function twoEngines(t: TestContext): Promise<{ a: Bed; b: Bed }> {
  const target = await testTarget(t)
  const a = await invokerBed(t, { target })
  const b = await invokerBed(t, { target, blobs: a.world.engine.blobs })
  assert.notEqual(a.world.engine.id, b.world.engine.id)
  assert.equal(a.world.platformOrgId, b.world.platformOrgId)
  return { a, b }
}

const versionsRun = (bed: Bed): string[] =>
  bed.nodes.opened.map(({ header }) => header.artifact.sha256)

test('FN-7 PL-4 a deploy, a rollback and a deletion by one engine are another’s at once, and old units go', async (t) => {
  const { a, b } = await twoEngines(t)
  await a.add(['node-a1'])
  await a.deploy('hello')
  for (let i = 0; i < 2; i++) assert.equal((await a.invoke('hello')).ok, true)
  await b.deploy('hello', { component: component(1) })
  await a.heard()
  assert.equal((await a.invoke('hello')).ok, true)
  const [first, second, third] = versionsRun(a)
  assert.equal(first, second)
  assert.notEqual(first, third)
  await until('the old units are back', async () =>
    (await slotsOf(a.world)).every(({ version }) => version === 2),
  )
  await b.client.compute.functions.rollback({ orgId: ORG, name: 'hello' })
  await a.heard()
  await a.invoke('hello')
  assert.equal(versionsRun(a).at(-1), first)
  await b.client.compute.functions.delete({ orgId: ORG, name: 'hello' })
  await a.heard()
  await assert.rejects(a.invoke('hello'), { code: 'NOT_FOUND' })
  await until('all are back', async () => (await slotsOf(a.world)).length === 0)
  assert.deepEqual(await slotDrift(a.world.engine.db), [])
})

test('000-43 ND-12 a node that one engine drains gets nothing from another, and what waits runs when it is resumed', async (t) => {
  const { a, b } = await twoEngines(t)
  await a.add(['node-a1'])
  await a.deploy('hello')
  assert.equal((await a.invoke('hello')).ok, true)
  const admin = b.world.client(await b.world.orgKey('admin'))
  await admin.compute.nodes.setDraining({ orgId: ORG, id: 'node-a1', draining: true })
  await a.heard()
  const waiting = a.invoke('hello')
  await until('it waits', () => a.invoker.running() === 1)
  await a.heard()
  assert.equal(a.nodes.opened.length, 1)
  await admin.compute.nodes.setDraining({ orgId: ORG, id: 'node-a1', draining: false })
  assert.equal((await waiting).ok, true)
})

test('ND-9 a node that one engine revokes gets nothing from another, whose session lives on for a moment', async (t) => {
  const { a, b } = await twoEngines(t)
  await a.add(['node-a1'])
  await a.deploy('hello')
  assert.equal((await a.invoke('hello')).ok, true)
  const admin = b.world.client(await b.world.orgKey('admin'))
  await admin.compute.nodes.revoke({ orgId: ORG, id: 'node-a1' })
  await a.heard()
  assert.notEqual(a.nodes.session('node-a1'), undefined)
  assert.equal((await a.invoke('hello')).reason, 'no-node')
  assert.equal(a.nodes.opened.length, 1)
})

test('ND-17 an engine that another takes for dead uses no slot of its nodes until they have registered again', async (t) => {
  const { a, b } = await twoEngines(t)
  await a.add(['node-a1'])
  await a.deploy('hello')
  assert.equal((await a.invoke('hello')).ok, true)
  const { db, clock, id } = a.world.engine
  await endSessionsOfEngine(b.world.engine.db, id, clock.now())
  await a.heard()
  const waiting = a.invoke('hello')
  await until('it waits', () => a.invoker.running() === 1)
  await systemClock.sleep(100)
  assert.equal(a.nodes.opened.length, 1)
  await db.updateTable('nodes').set({ connectivity: 'connected' }).execute()
  await db.updateTable('nodeSessions').set({ disconnectedAt: null, epoch: 2 }).execute()
  a.nodes.connect('node-a1')
  assert.equal((await waiting).ok, true)
})

test('AC-6 a quota that one engine sets is another’s at once; who is over it hears limit, use and whom to ask', async (t) => {
  const { a, b } = await twoEngines(t)
  await a.add(['node-a1'])
  await a.deploy('hello')
  assert.equal((await a.invoke('hello')).ok, true)
  await sql`
    insert into org_quotas (org_id, invocations_at_once, updated_at)
    values (${a.world.platformOrgId}, 2, now())
  `.execute(b.world.engine.db)
  await a.heard()
  const hold = gate()
  a.nodes.scripts.set('node-a1', hold.script)
  const two = [a.invoke('hello'), a.invoke('hello')]
  await until('both run', () => hold.begun === 2)
  await assert.rejects(a.invoke('hello'), (error: { code: string; message: string }) => {
    assert.equal(error.code, 'QUOTA_EXCEEDED')
    assert.match(error.message, /2 invocations .* under way or wait .* limit is 2/)
    return true
  })
  await sql`update org_quotas set invocations_at_once = 3`.execute(b.world.engine.db)
  await a.heard()
  const third = a.invoke('hello')
  await until('a raised quota holds at once', () => hold.begun === 3)
  const other = await a.world.makeOrg('other')
  await assert.rejects(a.invoker.invoke(request(a.world, { orgId: other })), { code: 'NOT_FOUND' })
  hold.open()
  for (const one of [...two, third]) assert.equal((await one).ok, true)
  assert.equal((await a.invoke('hello')).ok, true)
})

test('AC-6 an org that floods is held at its quota, and what is refused is not counted', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1', { cpuMillis: 1_000 }])
  await bed.deploy('hello')
  await sql`
    insert into org_quotas (org_id, invocations_at_once, updated_at)
    values (${bed.world.platformOrgId}, 5, now())
  `.execute(bed.world.engine.db)
  const hold = gate()
  bed.nodes.scripts.set('node-a1', hold.script)
  const all = Array.from({ length: 50 }, () => bed.invoker.invoke(request(bed.world)))
  const settled = Promise.allSettled(all)
  await until('one runs', () => hold.begun === 1)
  await until('the others are refused', () => bed.invoker.running() === 5)
  hold.open()
  const ends = (await settled).map((end) =>
    end.status === 'fulfilled' ? end.value.outcome.kind : (end.reason as { code: string }).code,
  )
  assert.equal(ends.filter((end) => end === 'exited').length, 5)
  assert.equal(ends.filter((end) => end === 'QUOTA_EXCEEDED').length, 45)
  assert.equal(bed.invoker.running(), 0)
})

test('000-43 an engine that hears of no change reads before every invocation', async (t) => {
  const bed = await invokerBed(t, { deaf: true })
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  for (let i = 0; i < 3; i++) assert.equal((await bed.invoke('hello')).ok, true)
  const { db } = bed.world.engine
  await db.updateTable('nodes').set({ communityFlag: true }).execute()
  assert.equal((await bed.invoke('hello')).reason, 'no-node')
  await db.updateTable('nodes').set({ communityFlag: false }).execute()
  assert.equal((await bed.invoke('hello')).ok, true)
  await sql`update nodes set no_schedule_reasons = '{draining}'`.execute(db)
  const waiting = bed.invoke('hello')
  await until('it waits', () => bed.invoker.running() === 1)
  await sql`update nodes set no_schedule_reasons = '{}'`.execute(db)
  assert.equal((await waiting).ok, true)
  assert.equal(bed.nodes.opened.length, 5)
})

test('PL-4 what changes while the listener is cut off is seen: at once, and after it listens again', async (t) => {
  const bed = await invokerBed(t)
  const { engine } = bed.world
  await bed.add(['node-a1'])
  await bed.deploy('hello')
  for (let round = 0; round < 3; round++) {
    const before = bed.nodes.opened.length
    assert.equal((await bed.invoke('hello')).ok, true)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'clutch listen'`.execute(engine.db)
    await engine.db.updateTable('nodes').set({ communityFlag: true }).execute()
    await until('it listens again', () => bed.listener?.hearing === true)
    await bed.heard()
    assert.equal((await bed.invoke('hello')).reason, 'no-node')
    assert.equal(bed.nodes.opened.length, before + 1)
    await engine.db.updateTable('nodes').set({ communityFlag: false }).execute()
    await bed.heard()
  }
})

test('design 10 with the store away warm invocations go on, cold ones are store_unavailable, and the history follows', async (t) => {
  const { target, direct, away, back } = await cuttable(t)
  const bed = await invokerBed(t, { target })
  await bed.add(['node-a1', { cpuMillis: 2_000 }])
  await bed.deploy('hello')
  await bed.deploy('other', { component: component(1) })
  await bed.invoke('hello')
  await bed.invoker.flushHistory()
  await away()
  const began = systemClock.monotonic()
  for (let i = 0; i < 50; i++) assert.equal((await bed.invoke('hello')).ok, true)
  assert.ok(systemClock.monotonic() - began < 5_000)
  await assert.rejects(bed.invoke('other'), (error: { code: string; data: { reason: string } }) => {
    assert.deepEqual([error.code, error.data.reason], ['UNAVAILABLE', 'store_unavailable'])
    return true
  })
  // The unit is busy: another invocation waits for it, since none can be booked.
  const hold = gate()
  bed.nodes.scripts.set('node-a1', hold.script)
  const one = bed.invoke('hello')
  await until('it runs', () => hold.begun === 1)
  const next = bed.invoke('hello')
  await until('it waits', () => bed.invoker.running() === 2)
  await systemClock.sleep(200)
  hold.open()
  assert.deepEqual([(await one).ok, (await next).ok], [true, true])
  await assert.rejects(bed.invoker.flushHistory())
  await back()
  await until('it listens again', () => bed.listener?.hearing === true)
  assert.equal(await bed.invoker.flushHistory(), 52)
  bed.nodes.scripts.clear()
  assert.equal((await bed.invoke('other')).ok, true)
  const db = connect(direct)
  t.after(() => db.destroy())
  assert.deepEqual(await slotDrift(db), [])
})

test('FN-9 4.7 whether a function is for everybody is remembered, also that it is not, until another engine changes it', async (t) => {
  const { a, b } = await twoEngines(t)
  const asked = () => a.invoker.publicOrg({ org: 'platform', name: 'open' })
  assert.equal(await asked(), undefined)
  const { db } = b.world.engine
  await b.deploy('open')
  await a.heard()
  assert.equal(await asked(), undefined)
  // Behind everybody's back: who reads again would see it.
  await db.updateTable('functionVersions').set({ public: true }).execute()
  assert.equal(await asked(), undefined)
  await b.deploy('open', { public: true })
  await a.heard()
  assert.equal(await asked(), a.world.platformOrgId)
  await db.updateTable('functionVersions').set({ public: false }).execute()
  assert.equal(await asked(), a.world.platformOrgId)
  await b.client.compute.functions.delete({ orgId: ORG, name: 'open' })
  await a.heard()
  assert.equal(await asked(), undefined)
})

test('FN-9 design 10 a public function works for strangers while the store is away', async (t) => {
  const { target, away } = await cuttable(t)
  const bed = await invokerBed(t, { target })
  await bed.add(['node-a1'])
  await bed.deploy('open', { public: true })
  await bed.heard()
  const call = () => fetch(`${bed.world.url}/fn/platform/open`, { method: 'POST' })
  const first = await call()
  assert.equal(first.status, 200, await first.text())
  await away()
  for (let i = 0; i < 3; i++) {
    const next = await call()
    assert.equal(next.status, 200, await next.text())
  }
  const unknown = await fetch(`${bed.world.url}/fn/platform/other`, { method: 'POST' })
  assert.equal(unknown.status, 503)
})

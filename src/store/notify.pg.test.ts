import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { connect, type StoreTarget, transaction } from '#store/connect.ts'
import { deleteFunction, setCurrentVersion } from '#store/functions/functions.ts'
import { type Change, Listener } from '#store/notify.ts'
import { endSessionsOfEngine } from '#store/sessions.ts'
import { testTarget } from '#store/test-database.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'

const deps = { clock: systemClock, random: systemRandom, log: silentLogger }

function listen(target: StoreTarget) {
  const heard: Change[] = []
  const hearing: boolean[] = []
  const listener = new Listener(
    { target, onChange: (change) => heard.push(change), onHearing: (now) => hearing.push(now) },
    deps,
  )
  listener.start()
  return { heard, hearing, listener }
}

const ids = (heard: readonly Change[]): string[] =>
  heard.map((change) => (change.kind === 'node' ? change.id : change.kind))

test('design 4.7 what decides about a node is told when it commits; bookings, beats and sessions are not', async (t) => {
  const target = await testTarget(t)
  const db = connect(target)
  const { heard, listener } = listen(target)
  t.after(() => db.destroy())
  t.after(() => listener.stop())
  await until('it listens', () => listener.hearing)
  await seedNodes(db, [nodeRow('n1', 'org_a'), nodeRow('n2', 'org_a')], 'eng_a')
  const set = (over: object) => db.updateTable('nodes').set(over).where('id', '=', 'n1').execute()
  await set({ usedCpuMillis: 5, usedMemMb: 5, lastSeenAt: new Date(), updatedAt: new Date() })
  await set({ connectivity: 'disconnected', generation: 7, observedGeneration: 7 })
  await set({ noScheduleReasons: [], cordoned: false, label: 'x', version: 9 })
  const telling = [
    { noScheduleReasons: ['draining'] },
    { cordoned: true },
    { maintenance: true },
    { communityFlag: true },
    { trustTier: 'community' },
    { role: 'job' },
    { trust: 'platform' },
    { provisionState: 'failed' },
    { region: 'blr1' },
    { runtimes: [] },
    { observedGeneration: 0 },
    { revokedAt: new Date() },
  ]
  for (const over of telling) await set(over)
  await assert.rejects(
    transaction(db, async (tx) => {
      await tx.updateTable('nodes').set({ cordoned: true }).where('id', '=', 'n2').execute()
      throw new Error('no')
    }),
  )
  await db.updateTable('nodes').set({ cordoned: true }).where('id', '=', 'n2').execute()
  await until('the last is heard', () => heard.length > telling.length)
  assert.deepEqual(ids(heard), [...telling.map(() => 'n1'), 'n2'])
})

test('design 4.7 a function tells its current version and its end, a quota its org', async (t) => {
  const target = await testTarget(t)
  const db = connect(target)
  const { heard, listener } = listen(target)
  t.after(() => db.destroy())
  t.after(() => listener.stop())
  await until('it listens', () => listener.hearing)
  const now = new Date()
  const row = { orgId: 'org_a', name: 'hello', lastVersion: 3, createdAt: now, updatedAt: now }
  await db
    .insertInto('functions')
    .values({ id: 'fn_1', currentVersion: 1, ...row })
    .execute()
  const of = { orgId: 'org_a', functionId: 'fn_1' }
  await transaction(db, (tx) => setCurrentVersion(tx, { ...of, version: 3, now }))
  await transaction(db, (tx) => deleteFunction(tx, of))
  for (const invocationsAtOnce of [5, null])
    await db
      .insertInto('orgQuotas')
      .values({ orgId: 'org_a', invocationsAtOnce, updatedAt: now })
      .onConflict((c) => c.column('orgId').doUpdateSet({ invocationsAtOnce }))
      .execute()
  await db.deleteFrom('orgQuotas').execute()
  await until('all are heard', () => heard.length >= 6)
  assert.deepEqual(heard, [
    { kind: 'function', id: 'fn_1', version: 1 },
    { kind: 'function', id: 'fn_1', version: 3 },
    { kind: 'function', id: 'fn_1', version: 0 },
    ...Array(3).fill({ kind: 'quota', orgId: 'org_a' }),
  ])
})

test('ND-17 an engine that is taken for dead hears it, if it held nodes', async (t) => {
  const target = await testTarget(t)
  const db = connect(target)
  const { heard, listener } = listen(target)
  t.after(() => db.destroy())
  t.after(() => listener.stop())
  await until('it listens', () => listener.hearing)
  await seedNodes(db, [nodeRow('n1', 'org_a')], 'eng_a')
  for (const id of ['eng_b', 'eng_a', 'eng_a']) await endSessionsOfEngine(db, id, Date.now())
  await db.updateTable('nodes').set({ cordoned: true }).execute()
  await until('the last is heard', () => heard.some(({ kind }) => kind === 'node'))
  assert.deepEqual(heard, [
    { kind: 'engine', id: 'eng_a' },
    { kind: 'node', id: 'n1' },
  ])
})

test('design 4.7 words of a later version are passed over', async (t) => {
  const target = await testTarget(t)
  const db = connect(target)
  const { heard, listener } = listen(target)
  t.after(() => db.destroy())
  t.after(() => listener.stop())
  await until('it listens', () => listener.hearing)
  for (const payload of ['', 'node', 'node ', 'function f', 'function f x', 'moon m1', 'node n1'])
    await sql`select pg_notify('clutch', ${payload})`.execute(db)
  await until('the last is heard', () => heard.length > 0)
  assert.deepEqual(heard, [{ kind: 'node', id: 'n1' }])
})

test('design 4.7 a listener whose connection is cut says that it hears nothing, and listens again', async (t) => {
  const target = await testTarget(t)
  const db = connect(target)
  const { hearing, listener } = listen(target)
  t.after(() => db.destroy())
  t.after(() => listener.stop())
  for (let round = 1; round <= 3; round++) {
    await until('it listens', () => hearing.length === 2 * round - 1)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'clutch listen'`.execute(db)
  }
  await until('it listens', () => hearing.length === 7)
  assert.deepEqual(hearing, [true, false, true, false, true, false, true])
})

test('design 4.7 a listener stops at once, also while there is no database', async (t) => {
  const target = await testTarget(t)
  for (const at of [target, { host: '/nonexistent', user: 'x', database: 'x' }]) {
    const { hearing, listener } = listen(at)
    await systemClock.sleep(0)
    await listener.stop()
    assert.equal(listener.hearing, false)
    assert.notEqual(hearing.at(-1), true)
  }
})

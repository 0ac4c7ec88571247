import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HISTORY_FLUSH_MS } from '#core/function/limits.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { systemClock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { connect } from '#store/connect.ts'
import { testDatabase } from '#store/test-database.ts'
import { insertInvocations, type InvocationRow } from '#store/functions/invocations.ts'
import { History } from '#engine/functions/history.ts'
import { historyLoop } from '#engine/loops/history.ts'
import { slotsLoop } from '#engine/loops/slots.ts'
import type { Invoker } from '#engine/functions/invoker.ts'

const row = (id: string, over: Partial<InvocationRow> = {}): InvocationRow => ({
  id,
  orgId: 'org',
  functionId: 'fn',
  functionName: 'hello',
  version: 1,
  nodeId: null,
  nodeName: null,
  trustTier: null,
  startedAt: new Date(0),
  durationMs: 1,
  ok: true,
  exitCode: 0,
  reason: null,
  error: null,
  memPeakMb: null,
  fuelUsed: null,
  stdoutBytes: 0,
  stderrBytes: 0,
  ...over,
})

/** An invoker of which only the history is asked. */
const withHistory = (history: History): Invoker => {
  const unused = () => assert.fail('not part of this test')
  return {
    invoke: unused,
    publicOrg: unused,
    changed: unused,
    hearing: unused,
    prepare: unused,
    tidySlots: async () => ({ slots: 0 }),
    flushHistory: () => history.flush(),
    running: unused,
    stop: unused,
  }
}

test('FN-7 what was added is in the store one flush later, in one batch', async (t) => {
  const db = await testDatabase(t)
  const history = new History({ db, log: silentLogger })
  const clock = fakeClock()
  const loop = historyLoop({ invoker: withHistory(history), clock, log: silentLogger })
  loop.start()
  t.after(() => loop.stop())
  for (let i = 0; i < 2_500; i++) history.add(row(`inv_${i}`))
  const count = async () => (await db.selectFrom('invocations').select('id').execute()).length
  const deadline = Date.now() + 10_000
  while ((await count()) < 2_500) {
    assert.ok(Date.now() < deadline)
    await clock.advance(HISTORY_FLUSH_MS)
    await systemClock.sleep(5)
  }
  assert.equal(loop.status.failures, 0)
})

test('FN-7 while the store is away the history waits, and the status of its loop says why', async (t) => {
  const db = await testDatabase(t)
  const away = connect({ url: 'postgres://nobody@127.0.0.1:1/none' })
  t.after(() => away.destroy())
  let store: typeof db = away
  // The one call that the history makes, at whichever store is there.
  const proxied = new Proxy(db, {
    get: (_, name) =>
      name === 'getExecutor'
        ? store.getExecutor.bind(store)
        : assert.fail(`${String(name)} is new`),
  })
  const history = new History({ db: proxied, log: silentLogger })
  history.add(row('inv_1'))
  const clock = fakeClock()
  const loop = historyLoop({ invoker: withHistory(history), clock, log: silentLogger })
  loop.start()
  t.after(() => loop.stop())
  const deadline = Date.now() + 10_000
  while (loop.status.failures < 2) {
    assert.ok(Date.now() < deadline)
    await clock.advance(HISTORY_FLUSH_MS)
    await systemClock.sleep(5)
  }
  assert.match(loop.status.error ?? '', /^The database cannot be reached/)
  history.add(row('inv_2'))
  store = db
  assert.equal(await history.flush(), 2)
})

test('FN-7 a row that the store refuses costs itself only', async (t) => {
  const db = await testDatabase(t)
  const history = new History({ db, log: silentLogger })
  const refused = ['inv_3', 'inv_7']
  for (let i = 0; i < 10; i++) {
    const id = `inv_${i}`
    history.add(row(id, refused.includes(id) ? { durationMs: 2 ** 40 } : {}))
  }
  assert.equal(await history.flush(), 8)
  const rows = await db.selectFrom('invocations').select('id').orderBy('id').execute()
  assert.deepEqual(
    rows.map(({ id }) => id),
    [0, 1, 2, 4, 5, 6, 8, 9].map((i) => `inv_${i}`),
  )
})

test('FN-7 FN-9 an answer of more than 2 GiB is counted', async (t) => {
  const db = await testDatabase(t)
  const history = new History({ db, log: silentLogger })
  history.add(row('inv_1', { stdoutBytes: 2 ** 41 }))
  assert.equal(await history.flush(), 1)
  const { stdoutBytes } = await db
    .selectFrom('invocations')
    .select('stdoutBytes')
    .executeTakeFirstOrThrow()
  assert.equal(stdoutBytes, 2 ** 41)
})

test('ND-22 the slots loop passes at once and every five seconds', async (t) => {
  const db = await testDatabase(t)
  const clock = fakeClock()
  const invoker = withHistory(new History({ db, log: silentLogger }))
  const loop = slotsLoop({ invoker, clock, log: silentLogger })
  loop.start()
  t.after(() => loop.stop())
  await clock.advance(0)
  assert.equal(loop.status.passes, 1)
  await clock.advance(5_000)
  assert.equal(loop.status.passes, 2)
  assert.deepEqual(loop.status.last, { slots: 0 })
})

test('FN-7 rows arrive as they are, whatever a guest’s error says; a batch that is sent twice is there once', async (t) => {
  const db = await testDatabase(t)
  const full = row('inv_1', {
    nodeId: 'n1',
    nodeName: 'node-a1',
    trustTier: 'secure',
    startedAt: new Date('2026-01-02T03:04:05.678Z'),
    ok: false,
    exitCode: 255,
    reason: 'trap',
    error: `"quoted" \\u0000 \n {[;']} é 🚀`,
    memPeakMb: 7,
    fuelUsed: Number.MAX_SAFE_INTEGER,
    stdoutBytes: 1,
    stderrBytes: 2,
  })
  await insertInvocations(db, [full, row('inv_2')])
  await insertInvocations(db, [full, row('inv_2')])
  const rows = await db.selectFrom('invocations').selectAll().orderBy('id').execute()
  assert.deepEqual(rows, [full, row('inv_2')])
  const history = new History({ db, log: silentLogger })
  history.add(row('inv_3', { error: `a\0b \ud800 ${'x'.repeat(5_000)}` }))
  assert.equal(await history.flush(), 1)
  const [odd] = await db
    .selectFrom('invocations')
    .select('error')
    .where('id', '=', 'inv_3')
    .execute()
  assert.match(odd?.error ?? '', /^ab \ufffd x{1900,2000}$/)
})

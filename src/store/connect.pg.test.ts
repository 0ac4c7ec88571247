import assert from 'node:assert/strict'
import test from 'node:test'
import { inspect } from 'node:util'
import { sql } from 'kysely'
import { AppError } from '#lib/error.ts'
import { connect, sqlState, type StoreTarget, transaction, urlOf } from '#store/connect.ts'
import { testDatabase, testTarget } from '#store/test-database.ts'

const reason =
  (expected: string) =>
  (error: unknown): boolean =>
    error instanceof AppError && error.code === 'UNAVAILABLE' && error.details.reason === expected

const link = (digit: string, expiresAt = new Date('2026-01-01')) => ({
  tokenHash: Buffer.from(digit.repeat(2), 'hex'),
  expiresAt,
})

test('design 5 int8 is a number, a date a text, a time a Date, and keys inside jsonb stay', async (t) => {
  const store = await testDatabase(t)
  const { rows } = await sql<Record<string, unknown>>`
    select 9007199254740991::int8 as big, date '2026-02-03' as day, '{"snake_case": {"in_side": 1}}'::jsonb as "js_on",
      timestamptz '2026-02-03T04:05:06.789Z' as at, current_setting('timezone') as zone
  `.execute(store)
  assert.deepEqual(rows[0], {
    big: Number.MAX_SAFE_INTEGER,
    day: '2026-02-03',
    jsOn: { snake_case: { in_side: 1 } },
    at: new Date('2026-02-03T04:05:06.789Z'),
    zone: 'UTC',
  })
  await assert.rejects(sql`select 9007199254740993::int8`.execute(store), /does not fit a number/)
  assert.equal((await sql`select 1`.execute(store)).rows.length, 1, 'the connection still works')
})

test('000 a database that is away is UNAVAILABLE with store_unavailable, and no crash', async () => {
  const places: StoreTarget[] = [
    { host: '/nonexistent', user: 'x', database: 'x' },
    { url: 'postgres://u:canary-5150@127.0.0.1:1/x' },
  ]
  for (const target of places) {
    const store = connect(target)
    await assert.rejects(sql`select 1`.execute(store), (error: unknown) => {
      assert.ok(reason('store_unavailable')(error), String(error))
      assert.doesNotMatch(inspect(error, { depth: 9 }), /canary/)
      return true
    })
    await store.destroy()
  }
})

test('design 4.9 a DATABASE_URL that is none is refused without being quoted', () => {
  for (const url of ['canary', 'http://canary@host/x', ''])
    assert.throws(
      () => connect({ url }),
      (error: unknown) =>
        error instanceof AppError && error.code === 'INVALID' && !inspect(error).includes('canary'),
    )
})

test('000 connections that the server ends are UNAVAILABLE to those in use and replaced for all others', async (t) => {
  const store = await testDatabase(t)
  const end = sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()`
  const began = Promise.withResolvers<void>()
  const held = store.transaction().execute(async (tx) => {
    await sql`select 1`.execute(tx)
    began.resolve()
    for (;;) await sql`select pg_sleep(0.01)`.execute(tx)
  })
  await began.promise
  const told = assert.rejects(held, reason('store_unavailable'))
  await end.execute(store)
  await told
  for (let n = 0; n < 20; n++) assert.equal((await sql`select 1`.execute(store)).rows.length, 1)
})

test('design 5 what takes too long is ended and told apart', async (t) => {
  const target = await testTarget(t)
  const store = connect(target, { max: 1, statementTimeoutMs: 50, connectTimeoutMs: 100 })
  t.after(() => store.destroy())
  await assert.rejects(sql`select pg_sleep(5)`.execute(store), reason('STORE_TIMEOUT'))
  const release = Promise.withResolvers<void>()
  const began = Promise.withResolvers<void>()
  const only = store.transaction().execute(async (tx) => {
    await sql`select 1`.execute(tx)
    began.resolve()
    await release.promise
  })
  await began.promise
  await assert.rejects(sql`select 1`.execute(store), reason('store_unavailable'))
  release.resolve()
  await only
})

test('design 4.5 a unique violation is named, other errors stay what they are', async (t) => {
  const store = await testDatabase(t)
  await store.insertInto('setupLinks').values(link('a')).execute()
  const again = store.insertInto('setupLinks').values(link('a')).execute()
  await assert.rejects(again, (error: unknown) => sqlState(error) === '23505')
  await assert.rejects(
    sql`select 1/0`.execute(store),
    (error: unknown) => sqlState(error) === '22012',
  )
})

test('design 5 a transaction that throws leaves nothing', async (t) => {
  const store = await testDatabase(t)
  const refusal = new AppError('CONFLICT', 'no')
  const attempt = transaction(store, async (tx) => {
    await tx.insertInto('setupLinks').values(link('a')).execute()
    throw refusal
  })
  await assert.rejects(attempt, (error) => error === refusal)
  assert.equal((await store.selectFrom('setupLinks').selectAll().execute()).length, 0)
  assert.equal(
    await transaction(store, async (tx) => {
      await tx.insertInto('setupLinks').values(link('b')).execute()
      return 'done'
    }),
    'done',
  )
  assert.equal((await store.selectFrom('setupLinks').selectAll().execute()).length, 1)
})

test('design 5 a deadlock is tried again where that was asked for, and told where not', async (t) => {
  const store = await testDatabase(t)
  await store
    .insertInto('setupLinks')
    .values([link('a'), link('b')])
    .execute()
  const clash = async (attemptsMax: number): Promise<{ runs: number; failed: unknown[] }> => {
    let runs = 0
    let waiting = Promise.withResolvers<void>()
    const both = waiting.promise
    const one = (digits: [string, string]): Promise<void> =>
      transaction(
        store,
        async (tx) => {
          for (const [at, digit] of digits.entries()) {
            await sql`set local deadlock_timeout = '50ms'`.execute(tx)
            await tx
              .updateTable('setupLinks')
              .set({ expiresAt: new Date('2027-01-01') })
              .where('tokenHash', '=', link(digit).tokenHash)
              .execute()
            // The first time both have one row before either asks for its second.
            if (at === 0 && ++runs === 2) waiting.resolve()
            if (at === 0) await both
          }
        },
        { attemptsMax },
      )
    const results = await Promise.allSettled([one(['a', 'b']), one(['b', 'a'])])
    return { runs, failed: results.flatMap((r) => (r.status === 'rejected' ? [r.reason] : [])) }
  }
  const once = await clash(1)
  assert.equal(once.failed.length, 1)
  assert.ok(reason('STORE_CONTENTION')(once.failed[0]))
  const again = await clash(3)
  assert.deepEqual(again.failed, [])
  assert.equal(again.runs, 3)
})

test('design 5 a serialization conflict is tried again', async (t) => {
  const store = await testDatabase(t)
  const count = async (attemptsMax: number): Promise<number> => {
    await store.deleteFrom('setupLinks').execute()
    const add = (digit: string): Promise<void> =>
      transaction(
        store,
        async (tx) => {
          const rows = await tx.selectFrom('setupLinks').selectAll().execute()
          if (rows.length === 0) await tx.insertInto('setupLinks').values(link(digit)).execute()
        },
        { isolation: 'serializable', attemptsMax },
      )
    await Promise.allSettled(['a', 'b', 'c', 'd'].map(add))
    return (await store.selectFrom('setupLinks').selectAll().execute()).length
  }
  assert.equal(await count(10), 1)
})

test('design 5 a target as a URL is the same place', async (t) => {
  const target = await testTarget(t)
  const store = connect({ url: urlOf(target) })
  t.after(() => store.destroy())
  const name = await sql<{ name: string }>`select current_database() as name`.execute(store)
  assert.match(name.rows[0]!.name, /^test_/)
})

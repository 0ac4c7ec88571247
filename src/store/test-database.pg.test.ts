import assert from 'node:assert/strict'
import test from 'node:test'
import { sql } from 'kysely'
import { type Scope, testDatabase, testTarget } from '#store/test-database.ts'
import { connect } from '#store/connect.ts'

/** A test within the test, whose end we can watch. */
function scope(): Scope & { end(): Promise<void> } {
  const ends: (() => Promise<void>)[] = []
  return {
    after: (fn) => void ends.push(fn),
    async end() {
      for (let end = ends.shift(); end; end = ends.shift()) await end()
    },
  }
}

test('design 4.12 a test database has all tables and none of another test', async (t) => {
  const one = await testDatabase(t)
  const other = await testDatabase(t)
  await one.insertInto('setupLinks').values(link()).execute()
  assert.equal((await one.selectFrom('setupLinks').selectAll().execute()).length, 1)
  assert.equal((await other.selectFrom('setupLinks').selectAll().execute()).length, 0)
})

test('design 4.12 a test database is gone after its test', async (t) => {
  const inner = scope()
  const store = await testDatabase(inner)
  const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(store)
  await inner.end()
  const admin = await testDatabase(t)
  const found = await sql`select from pg_database where datname = ${rows[0]?.name}`.execute(admin)
  assert.equal(found.rows.length, 0)
})

test('design 4.12 a transaction left open fails its test', async () => {
  const inner = scope()
  const store = await testDatabase(inner)
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  const open = store.transaction().execute(async (tx) => {
    await sql`select 1`.execute(tx)
    begun.resolve()
    await held.promise
  })
  await begun.promise
  await assert.rejects(inner.end(), /left open|still in use/)
  held.resolve()
  await assert.rejects(open, /cannot be reached|terminat/)
})

test('design 4.12 a connection left open by a program fails its test', async () => {
  const inner = scope()
  const own = connect(await testTarget(inner))
  await sql`select 1`.execute(own)
  await assert.rejects(inner.end(), /connections were left open: clutch: idle/)
  await own.destroy()
})

const link = (): { tokenHash: Buffer; expiresAt: Date } => ({
  tokenHash: Buffer.from('00', 'hex'),
  expiresAt: new Date('2026-01-01'),
})

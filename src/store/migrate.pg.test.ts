import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { sql } from 'kysely'
import { AppError } from '#lib/error.ts'
import { connect, type Store, type StoreTarget } from '#store/connect.ts'
import { migrate, migrationFiles, MIGRATIONS_FOLDER } from '#store/migrate.ts'
import { emptyTestTarget, testDatabase } from '#store/test-database.ts'

const ROOT = join(import.meta.dirname, '../..')

/** Our migrations, to change. */
function copy(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'clutch-migrations-'))
  t.after(() => rmSync(folder, { recursive: true }))
  cpSync(MIGRATIONS_FOLDER, folder, { recursive: true })
  return folder
}

const nextName = async (folder: string): Promise<string> =>
  `${String((await migrationFiles(folder)).length + 1).padStart(4, '0')}-added.sql`

async function storeAt(t: TestContext, target: StoreTarget): Promise<Store> {
  const store = connect(target)
  t.after(() => store.destroy())
  return store
}

const reason = (expected: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError, String(error))
  assert.equal(error.code, 'INVALID_STATE')
  assert.equal(error.details.reason, expected)
  assert.match(error.message, message)
  return true
}

test('design 4.10 migrating runs each migration once', async (t) => {
  const target = await emptyTestTarget(t)
  const names = (await migrationFiles()).map((file) => file.name)
  assert.deepEqual(await migrate(target), names)
  assert.deepEqual(await migrate(target), [])
})

test('design 4.10 engines that start at once on an empty database migrate it once', async (t) => {
  const target = await emptyTestTarget(t)
  const names = (await migrationFiles()).map((file) => file.name)
  const runs = await Promise.all(Array.from({ length: 4 }, () => migrate(target)))
  assert.deepEqual(runs.flat(), names)
})

test('design 4.10 a schema newer than the program is refused', async (t) => {
  const target = await emptyTestTarget(t)
  const newer = copy(t)
  writeFileSync(join(newer, await nextName(newer)), 'create table added (id text primary key);\n')
  await migrate(target, newer)
  await assert.rejects(
    migrate(target),
    reason('SCHEMA_NEWER', /it has \d{4}-added, and this program knows up to/),
  )
  assert.deepEqual(await migrate(target, newer), [])
})

test('design 4.10 a migration that changed after it ran is refused', async (t) => {
  const target = await emptyTestTarget(t)
  await migrate(target)
  const changed = copy(t)
  appendFileSync(join(changed, '0001-auth.sql'), '-- a comment\n')
  await assert.rejects(
    migrate(target, changed),
    reason('SCHEMA_CHANGED', /0001-auth is not the one/),
  )
})

test('design 4.10 a migration that fails is undone whole', async (t) => {
  const target = await emptyTestTarget(t)
  const broken = copy(t)
  writeFileSync(join(broken, await nextName(broken)), 'create table half (id text);\nselect 1/0;\n')
  await assert.rejects(migrate(target, broken), /a migration failed/)
  const store = await storeAt(t, target)
  const { rows } = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public' and tablename not like 'kysely%'
  `.execute(store)
  assert.deepEqual(rows, [])
  assert.ok((await migrate(target)).length > 0)
})

test('design 4.10 a migration whose name or number is wrong is refused', async (t) => {
  const folder = copy(t)
  writeFileSync(join(folder, '0099-gap.sql'), 'select 1;')
  await assert.rejects(migrationFiles(folder), /0099-gap\.sql should be named/)
})

test('ND-27 a database that cannot hold every text is refused', async (t) => {
  const store = await testDatabase(t)
  const name = (await sql<{ name: string }>`select current_database() as name`.execute(store))
    .rows[0]!.name
  const ascii = `${name}_ascii`
  await sql`create database ${sql.ref(ascii)} template template0 encoding 'SQL_ASCII' locale 'C' ${await provider(store)}`.execute(
    store,
  )
  t.after(() => sql`drop database ${sql.ref(ascii)}`.execute(store).then(() => undefined))
  const target = await emptyTestTarget(t)
  const there =
    'url' in target ? { url: withPath(target.url, ascii) } : { ...target, database: ascii }
  await assert.rejects(migrate(there), reason('STORE_ENCODING', /SQL_ASCII; UTF8 is needed/))
})

const withPath = (url: string, database: string): string => {
  const changed = new URL(url)
  changed.pathname = `/${database}`
  return changed.href
}

// The builtin locales of Postgres 17 and newer are UTF8 only, and a template's provider is inherited.
const provider = async (store: Store) => {
  const { rows } = await sql<{
    v: number
  }>`select current_setting('server_version_num')::int as v`.execute(store)
  return rows[0]!.v >= 150000 ? sql`locale_provider 'libc'` : sql``
}

test('ND-27 our own SQL makes neither times nor ids', async () => {
  for (const file of await migrationFiles()) {
    const own =
      file.name === '0001-auth' ? file.text.slice(file.text.indexOf('-- Part 2')) : file.text
    const code = own.replaceAll(/--.*$/gm, '')
    assert.ok(code.length > 0)
    assert.doesNotMatch(
      code,
      /\bnow\s*\(|current_timestamp|current_date|localtime|clock_timestamp|statement_timestamp|uuid|random\s*\(|serial\b|generated (always|by default) as identity|nextval/i,
      file.name,
    )
    assert.doesNotMatch(
      file.name === '0001-auth' ? '' : code,
      /references\s+"?(users|sessions|accounts|verifications|organizations|members|invitations|apikey|device_code)\b/i,
      `${file.name}: a fleet table refers to the identity system`,
    )
  }
  assert.ok(readdirSync(MIGRATIONS_FOLDER).includes('0001-auth.sql'))
})

test('design 4.10 the checked-in types are what all migrations make', () => {
  const script = join(ROOT, 'script/codegen.ts')
  execFileSync(process.execPath, [script, '--check'], { cwd: ROOT, stdio: 'pipe' })
})

test('design 5 the migrations make every table that better-auth wants', () => {
  const script = join(ROOT, 'script/auth-sql.ts')
  execFileSync(process.execPath, [script, '--check'], { cwd: ROOT, stdio: 'pipe' })
})

// Numbered, forward-only .sql files through Kysely's migrator.
// 1. All waiting migrations are one transaction under an advisory lock: of two engines that start at once, one does the
//    work and the other finds it done.
// 2. A schema with a migration that this program does not know is refused: an older program must not write to it.
// 3. A migration that has run never changes: its hash stands in the database and is compared.
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Kysely, sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { connect, type Store, type StoreTarget } from '#store/connect.ts'

export const MIGRATIONS_FOLDER = join(import.meta.dirname, '../../migrations')

/** The oldest Postgres whose SQL we write (ND-27). */
const OLDEST_VERSION = 15

export type MigrationFile = { name: string; text: string; hash: string }

/** The migrations in order. A name is four digits and words: `0001-auth.sql`. */
export async function migrationFiles(folder = MIGRATIONS_FOLDER): Promise<MigrationFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).toSorted()
  return Promise.all(
    names.map(async (file, at) => {
      if (!/^\d{4}-[a-z0-9-]+\.sql$/.test(file) || Number(file.slice(0, 4)) !== at + 1)
        throw new Error(
          `migration ${file} should be named ${String(at + 1).padStart(4, '0')}-….sql`,
        )
      const text = await readFile(join(folder, file), 'utf8')
      return { name: file.slice(0, -4), text, hash: sha256Hex(text) }
    }),
  )
}

/**
 * Brings the database at `target` to the newest schema and returns the names of the migrations that ran.
 * Errors: INVALID_STATE with `SCHEMA_NEWER`, `SCHEMA_CHANGED`, `STORE_TOO_OLD`, `STORE_ENCODING`; UNAVAILABLE.
 */
export async function migrate(target: StoreTarget, folder?: string): Promise<string[]> {
  const files = await migrationFiles(folder)
  // Its own connections: waiting for another engine's migration may take longer than any statement or lock should.
  const store = connect(target, { max: 2, statementTimeoutMs: 0, lockTimeoutMs: 0 })
  try {
    await refuseUnfit(store)
    await refuseUnknown(store, files)
    const { error, results } = await new Migrator({
      db: withoutTypes(store),
      provider: { getMigrations: async () => Object.fromEntries(files.map(toMigration)) },
    }).migrateToLatest()
    if (error !== undefined) throw await explained(store, files, error)
    return (results ?? []).map((result) => result.migrationName)
  } finally {
    await store.destroy()
  }
}

// The migrator works on tables of its own, outside our schema's types.
const withoutTypes = (store: Store): Kysely<unknown> => store as unknown as Kysely<unknown>

function toMigration(file: MigrationFile): [string, Migration] {
  const up = async (db: Kysely<unknown>): Promise<void> => {
    await sql.raw(file.text).execute(db)
    await sql`insert into migration_hashes (name, sha256) values (${file.name}, ${file.hash})`.execute(
      db,
    )
  }
  return [file.name, { up }]
}

async function refuseUnfit(store: Store): Promise<void> {
  const { rows } = await sql<{ version: number; encoding: string }>`
    select current_setting('server_version_num')::int as version, current_setting('server_encoding') as encoding
  `.execute(store)
  const [server] = rows
  const major = Math.floor((server?.version ?? 0) / 10_000)
  if (major < OLDEST_VERSION)
    throw refusal(
      'STORE_TOO_OLD',
      `The database is Postgres ${major}; ${OLDEST_VERSION} or newer is needed`,
      `Upgrade it, or let DATABASE_URL name a Postgres ${OLDEST_VERSION} or newer`,
    )
  if (server?.encoding !== 'UTF8')
    throw refusal(
      'STORE_ENCODING',
      `The database's encoding is ${server?.encoding}; UTF8 is needed`,
      "Create one with: create database clutch encoding 'UTF8' template template0",
    )
}

async function refuseUnknown(store: Store, files: MigrationFile[]): Promise<void> {
  const known = new Map(files.map((file) => [file.name, file]))
  const newer = (await names(store)).filter((name) => !known.has(name))
  if (newer.length > 0)
    throw refusal(
      'SCHEMA_NEWER',
      `The database's schema is newer than this program: it has ${newer.join(', ')}, and this program knows up to ${files.at(-1)?.name}`,
      'Start the version of Clutch that made it, or a newer one',
    )
  for (const { name, sha256 } of await hashes(store))
    if (known.get(name)?.hash !== sha256)
      throw refusal(
        'SCHEMA_CHANGED',
        `The migration ${name} is not the one that ran on this database`,
        'Restore the file as it was released; a change of the schema is a new migration',
      )
}

// Another engine of a newer version may have migrated while we waited for the lock.
async function explained(store: Store, files: MigrationFile[], error: unknown): Promise<unknown> {
  await refuseUnknown(store, files)
  if (error instanceof AppError) return error
  return new Error('a migration failed and was undone', { cause: error })
}

async function exists(store: Store, table: string): Promise<boolean> {
  const { rows } = await sql<{ found: boolean }>`
    select to_regclass(${table}) is not null as found
  `.execute(store)
  return rows[0]?.found === true
}

async function names(store: Store): Promise<string[]> {
  if (!(await exists(store, 'kysely_migration'))) return []
  const { rows } = await sql<{ name: string }>`
    select name from kysely_migration order by name
  `.execute(store)
  return rows.map((row) => row.name)
}

async function hashes(store: Store): Promise<{ name: string; sha256: string }[]> {
  if (!(await exists(store, 'migration_hashes'))) return []
  return store.selectFrom('migrationHashes').selectAll().execute()
}

const refusal = (reason: string, message: string, next: string): AppError =>
  new AppError('INVALID_STATE', message, { details: { reason, next } })

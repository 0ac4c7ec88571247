// Databases for tests: each test its own, cloned from a template that has all migrations.
// 1. One Postgres serves all test processes of a machine's user: CLUTCH_TEST_DATABASE_URL, or one that the warden
//    (test-database/warden.ts) starts for the first process and stops after the last.
// 2. A template is named by the hash of the migrations and is complete or absent.
// 3. A database is dropped when its test ends. Connections that are still open then fail the test.
import pg from 'pg'
import { sha256Hex } from '#lib/bytes.ts'
import { systemRandom } from '#lib/random.ts'
import { testDatabaseUrl } from '#lib/test-environment.ts'
import {
  clientConfig,
  createPool,
  type Store,
  storeOver,
  type StoreTarget,
} from '#store/connect.ts'
import { migrate, migrationFiles } from '#store/migrate.ts'
import { eventually, sharedServer } from '#store/test-database/server.ts'

/** A test's context, or anything else that says when it is over. */
export type Scope = { after(fn: () => Promise<void>): void }

/** Any number, the same in all processes: who makes a template holds this lock. */
const TEMPLATE_LOCK = 7_207_001
/** A connection that was given back takes a moment to leave the server's list. */
const LEAVE_TIMEOUT_MS = 2000

/** A store on a fresh database with all migrations. */
export async function testDatabase(t: Scope): Promise<Store> {
  const { target, drop } = await create(await template())
  const pool = createPool(target, { max: 10 })
  const store = storeOver(pool)
  last(t, async () => {
    const inUse = (): number => pool.totalCount - pool.idleCount + pool.waitingCount
    const returned = await eventually(LEAVE_TIMEOUT_MS, async () => inUse() === 0)
    const count = inUse()
    // Ends when the last connection is back, which may be never.
    const ended = store.destroy()
    if (returned) await ended
    await drop()
    if (!returned) throw new Error(`${count} connections are still in use after the test`)
  })
  return store
}

/** The same without a store: for a test that starts a program or opens its own connections. */
export async function testTarget(t: Scope): Promise<StoreTarget> {
  const { target, drop } = await create(await template())
  last(t, drop)
  return target
}

/** A database without any table of ours. */
export async function emptyTestTarget(t: Scope): Promise<StoreTarget> {
  const { target, drop } = await create('template0')
  last(t, drop)
  return target
}

type Made = { target: StoreTarget; drop: () => Promise<void> }

async function create(from: string): Promise<Made> {
  const admin = await server()
  const name = `test_${process.pid}_${Buffer.from(systemRandom.bytes(6)).toString('hex')}`
  await admin.pool.query(
    `create database ${name} template ${from} encoding 'UTF8' strategy file_copy`,
  )
  const open = async (): Promise<string[]> => {
    const { rows } = await admin.pool.query<{ what: string }>(
      `select concat_ws(': ', application_name, state, left(query, 80)) as what
       from pg_stat_activity where datname = $1 and backend_type = 'client backend'`,
      [name],
    )
    return rows.map((row) => row.what)
  }
  const drop = async (): Promise<void> => {
    const left = await eventually(LEAVE_TIMEOUT_MS, async () => (await open()).length === 0)
    const leaked = left ? [] : await open()
    await admin.pool.query(`drop database if exists ${name} with (force)`)
    if (leaked.length > 0) throw new Error(`connections were left open: ${leaked.join('; ')}`)
  }
  return { target: withDatabase(admin.target, name), drop }
}

/** Runs `fn` after whatever else the test still wants done at its end: node runs these first come, first served. */
function last(t: Scope, fn: () => Promise<void>): void {
  t.after(async () => t.after(async () => t.after(fn)))
}

function withDatabase(target: StoreTarget, database: string): StoreTarget {
  if (!('url' in target)) return { ...target, database }
  const url = new URL(target.url)
  url.pathname = `/${database}`
  return { url: url.href }
}

type Server = { pool: pg.Pool; target: StoreTarget }
let running: Promise<Server> | undefined

/** One a process. Its idle connections do not keep the process alive. */
function server(): Promise<Server> {
  running ??= (async () => {
    const url = testDatabaseUrl()
    const target = url ? { url } : await sharedServer()
    const pool = new pg.Pool({ ...clientConfig(target), max: 2, allowExitOnIdle: true })
    pool.on('error', () => undefined)
    return { pool, target }
  })()
  return running
}

let made: Promise<string> | undefined

function template(): Promise<string> {
  made ??= (async () => {
    const admin = await server()
    const files = await migrationFiles()
    const name = `template_${sha256Hex(files.map((file) => file.hash).join()).slice(0, 16)}`
    const client = await admin.pool.connect()
    try {
      await client.query('select pg_advisory_lock($1)', [TEMPLATE_LOCK])
      const found = await client.query('select from pg_database where datname = $1', [name])
      if (found.rowCount === 0) {
        const draft = `draft_${name}`
        await client.query(`drop database if exists ${draft} with (force)`)
        await client.query(`create database ${draft} template template0 encoding 'UTF8'`)
        await migrate(withDatabase(admin.target, draft))
        await client.query(`alter database ${draft} rename to ${name}`)
      }
    } finally {
      // With the connection goes its lock.
      client.release(true)
    }
    return name
  })()
  return made
}

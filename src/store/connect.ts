// The one way to Postgres: a bounded pool under Kysely.
// 1. A database that is away is `UNAVAILABLE store_unavailable`, never a crash: a checked-out client that loses its
//    connection has a listener, or node ends the process.
// 2. int8 arrives as a number; a value a double cannot hold is an error, never a rounded number.
// 3. A write whose connection broke may or may not have happened: `details.outcome` says 'unknown'.
import {
  CamelCasePlugin,
  type IsolationLevel,
  Kysely,
  PostgresDialect,
  type PostgresPool,
  type PostgresPoolClient,
  type Transaction,
} from 'kysely'
import pg from 'pg'
import { AppError } from '#lib/error.ts'
import type { DB } from '#store/schema.gen.ts'

export type Store = Kysely<DB>
export type Tx = Transaction<DB>

/** Where Postgres is: a URL (`DATABASE_URL`), or the folder of a unix socket with peer authentication. */
export type StoreTarget = { url: string } | { host: string; user: string; database: string }

/** Connections an engine holds at most; an embedded Postgres allows 100, shared by listeners and tools. */
const POOL_MAX = 20
/** A statement that runs longer is a mistake: nothing here scans without a limit. */
const STATEMENT_TIMEOUT_MS = 30_000
/** Waiting longer for a row means somebody holds it over a network call. */
const LOCK_TIMEOUT_MS = 10_000
/** A transaction that its program forgot must not hold back vacuum. */
const IDLE_IN_TRANSACTION_MS = 60_000
/** Waiting for a free or a new connection; then the caller hears `store_unavailable`. */
const CONNECT_TIMEOUT_MS = 5000

/** 0 is no limit. */
export type PoolLimits = {
  max?: number
  statementTimeoutMs?: number
  lockTimeoutMs?: number
  connectTimeoutMs?: number
}

/** Opens a store; connections are made when first needed. End it with `store.destroy()`. */
export function connect(target: StoreTarget, limits: PoolLimits = {}): Store {
  return storeOver(createPool(target, limits))
}

export function createPool(target: StoreTarget, limits: PoolLimits = {}): pg.Pool {
  const pool = new pg.Pool({
    ...clientConfig(target),
    max: limits.max ?? POOL_MAX,
    statement_timeout: limits.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS,
    lock_timeout: limits.lockTimeoutMs ?? LOCK_TIMEOUT_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    connectionTimeoutMillis: limits.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
  })
  // An idle client died: the pool has dropped it and the next query gets a new one.
  pool.on('error', () => undefined)
  // A client that is in use died: its query rejects, which is where the error is told.
  pool.on('connect', (client) => void client.on('error', () => undefined))
  return pool
}

export function storeOver(pool: pg.Pool): Store {
  return new Kysely<DB>({
    dialect: new PostgresDialect({ pool: guarded(pool) }),
    // Keys inside jsonb are data, not names of ours.
    plugins: [new CamelCasePlugin({ maintainNestedObjectKeys: true })],
  })
}

/** What every connection of ours has in common; also for tests' own. */
export function clientConfig(target: StoreTarget): pg.ClientConfig {
  const shared: pg.ClientConfig = {
    application_name: 'clutch',
    keepAlive: true,
    options: '-c timezone=UTC',
    types: { getTypeParser },
  }
  if (!('url' in target)) return { ...shared, ...target }
  if (!URL.canParse(target.url) || !/^postgres(ql)?:$/.test(new URL(target.url).protocol))
    throw new AppError('INVALID', 'DATABASE_URL is not the URL of a Postgres database', {
      details: {
        reason: 'DATABASE_URL',
        next: 'Write it as postgres://user:password@host:5432/database',
      },
    })
  return { ...shared, connectionString: target.url }
}

/** The same place as a URL, for a child process. */
export function urlOf(target: StoreTarget): string {
  if ('url' in target) return target.url
  const { host, user, database } = target
  return `postgres://${encodeURIComponent(user)}@localhost/${encodeURIComponent(database)}?host=${encodeURIComponent(host)}`
}

const getTypeParser: pg.CustomTypesConfig['getTypeParser'] = (id, format) => {
  if (format === 'binary') return pg.types.getTypeParser(id, format)
  if (id === pg.types.builtins.INT8) return toNumber
  // A date has no zone: a Date of it would be another day west of Greenwich.
  if (id === pg.types.builtins.DATE) return String
  return pg.types.getTypeParser(id, 'text')
}

function toNumber(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new Error(`int8 ${text} does not fit a number`)
  return value
}

function guarded(pool: pg.Pool): PostgresPool {
  return {
    async connect() {
      let client: pg.PoolClient
      try {
        client = await pool.connect()
      } catch (error) {
        throw pool.ending ? error : unavailable(error)
      }
      const query = async (text: string, values: readonly unknown[]): Promise<unknown> => {
        try {
          return await client.query(text, [...values])
        } catch (error) {
          throw told(error)
        }
      }
      // The overload with a cursor is for streaming, which has to be switched on and is not.
      return { query, release: () => client.release() } as PostgresPoolClient
    },
    end: () => pool.end(),
    options: {},
  }
}

/** The five letters of a database error, or undefined: https://www.postgresql.org/docs/15/errcodes-appendix.html */
export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined
}

function told(error: unknown): unknown {
  const state = sqlState(error)
  if (state === undefined) return isConnectionError(error) ? unavailable(error) : error
  // 08 connection, 57P01-57P05 shut down or terminated, 53300 full, 25006 a standby after a fail-over.
  if (/^(08...|57P0.|53300|25006)$/.test(state)) return unavailable(error)
  if (state === '53100' || state === '53200')
    return refused(
      error,
      'STORE_FULL',
      'The database has no room left on its disk or in its memory',
    )
  if (state === '57014')
    return refused(error, 'STORE_TIMEOUT', 'The database took too long for one statement')
  if (state === '55P03')
    return refused(error, 'STORE_BUSY', 'The database kept another change of the same row waiting')
  return error
}

const CONNECTION_CODES = new Set(
  'ECONNREFUSED ECONNRESET EPIPE ENOENT ETIMEDOUT EHOSTUNREACH ENETUNREACH ENOTFOUND EAI_AGAIN'.split(
    ' ',
  ),
)

function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error && CONNECTION_CODES.has(String(error.code))) return true
  return /^Connection terminated|not queryable/.test(error.message)
}

function unavailable(cause: unknown): AppError {
  return new AppError('UNAVAILABLE', 'The database cannot be reached', {
    cause,
    details: {
      reason: 'store_unavailable',
      outcome: 'unknown',
      next: 'Try again in a moment; what runs goes on meanwhile',
    },
  })
}

const refused = (cause: unknown, reason: string, message: string): AppError =>
  new AppError('UNAVAILABLE', message, { cause, details: { reason, next: 'Try again' } })

export type TransactionOptions = {
  isolation?: IsolationLevel
  /**
   * How often `fn` may run in all when Postgres breaks a deadlock (40P01) or a serialization conflict (40001). Postgres
   * has then undone all of it, so only what `fn` did outside the database counts: more than 1 is for an `fn` that does
   * nothing outside. Default 1.
   */
  attemptsMax?: number
}

/** Runs `fn` in one transaction: committed when it returns, undone when it throws. */
export async function transaction<T>(
  store: Store,
  fn: (tx: Tx) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      const begin = store.transaction()
      return await (options.isolation ? begin.setIsolationLevel(options.isolation) : begin).execute(
        fn,
      )
    } catch (error) {
      const state = sqlState(error)
      if (state !== '40001' && state !== '40P01') throw error
      if (attempt >= (options.attemptsMax ?? 1))
        throw refused(error, 'STORE_CONTENTION', 'Another change of the same rows came first')
    }
  }
}

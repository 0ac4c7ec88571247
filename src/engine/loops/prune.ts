// Tables of the API that grow, each with its limit (OP-10): the audit trail, idempotency keys, what expired in the identity
// system's tables.
import { EVENTS_KEPT_MS, IDEMPOTENCY_KEPT_MS } from '#core/access/limits.ts'
import type { Clock, Instant } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Store } from '#store/connect.ts'
import { pruneEvents } from '#store/events.ts'
import { pruneExpired } from '#store/expired.ts'
import { pruneKeys } from '#store/idempotency.ts'

const EVERY_MS = 10 * 60_000
/** Rows of one statement: none holds locks for long. */
const ROWS_MAX = 5_000
/** An expired row may still be asked about for a moment: a device code that says so is better than an unknown one. */
const EXPIRED_KEPT_MS = 24 * 3_600_000

export const pruneLoop = (deps: { db: Store; clock: Clock; log: Logger }): Loop =>
  new Loop({ name: 'prune', everyMs: EVERY_MS, pass: () => prune(deps) }, deps)

/** One pass; how many rows of each went. */
export async function prune(deps: {
  db: Store
  clock: Clock
}): Promise<{ events: number; keys: number; expired: number }> {
  const now = deps.clock.now()
  return {
    events: await all(deps.db, pruneEvents, now - EVENTS_KEPT_MS),
    keys: await all(deps.db, pruneKeys, now - IDEMPOTENCY_KEPT_MS),
    expired: await pruneExpired(deps.db, now - EXPIRED_KEPT_MS),
  }
}

type PruneSome = (db: Store, before: Instant, limit: number) => Promise<number>

async function all(db: Store, some: PruneSome, before: Instant): Promise<number> {
  let deleted = 0
  for (let last = ROWS_MAX; last === ROWS_MAX; deleted += last)
    last = await some(db, before, ROWS_MAX)
  return deleted
}

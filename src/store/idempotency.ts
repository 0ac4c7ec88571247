// Table idempotency_keys (D40, D51): one row an (org, procedure, key), kept for a day.
// 1. Who inserts the row runs the call; everybody else finds it. Inside one transaction a second caller waits on the
//    row until the first commits or rolls back.
// 2. A call outside a transaction claims its key for its engine. What an engine that died had claimed, it gives back when
//    it starts again; what it could not give back because the store was away, it takes over at the next call.
//    But for a call that runs at most once: its claim stands until the key is pruned, because it may have acted.
// 3. The answer is never one that holds a secret: procedures that give secrets store what they are about.
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

export type KeyOf = { orgId: string; procedure: string; key: string }
export type Seen = {
  requestHash: Buffer
  answer: unknown
  createdAt: Date
  /** Of a claim outside a transaction. */
  engineId: string | null
}

/** Undefined: the key is new, and now this caller's. `answer` null: another call with it is under way. */
export async function claimKey(
  db: Store | Tx,
  key: KeyOf,
  row: { requestHash: Buffer; now: Instant; engineId?: string; atMostOnce?: boolean },
): Promise<Seen | undefined> {
  const result = await db
    .insertInto('idempotencyKeys')
    .values({
      ...key,
      requestHash: row.requestHash,
      answer: null,
      engineId: row.engineId ?? null,
      atMostOnce: row.atMostOnce ?? false,
      createdAt: new Date(row.now),
    })
    .onConflict((conflict) => conflict.columns(['orgId', 'procedure', 'key']).doNothing())
    .executeTakeFirst()
  if (result.numInsertedOrUpdatedRows === 1n) return undefined
  const seen = await of(db.selectFrom('idempotencyKeys'), key)
    .select(['requestHash', 'answer', 'createdAt', 'engineId'])
    .executeTakeFirst()
  // Between the two statements the other call failed and gave the key back: as good as under way.
  return (
    seen ?? {
      requestHash: row.requestHash,
      answer: null,
      createdAt: new Date(row.now),
      engineId: null,
    }
  )
}

/** Takes over a claim whose owner seems to have died; false when somebody else was faster. */
export async function reclaimKey(
  db: Store,
  key: KeyOf,
  claim: { from: Date; now: Instant; requestHash: Buffer; engineId: string },
): Promise<boolean> {
  const result = await of(db.updateTable('idempotencyKeys'), key)
    .set({
      createdAt: new Date(claim.now),
      requestHash: claim.requestHash,
      engineId: claim.engineId,
    })
    .where('answer', 'is', null)
    .where('createdAt', '=', claim.from)
    .executeTakeFirst()
  return result.numUpdatedRows === 1n
}

/** False, and nothing changed, when another call has taken over the claim of `claimedAt`. */
export async function answerKey(
  db: Store | Tx,
  key: KeyOf,
  claim: { claimedAt: Instant; answer: unknown },
): Promise<boolean> {
  const result = await of(db.updateTable('idempotencyKeys'), key)
    .set({ answer: JSON.stringify(claim.answer) })
    .where('createdAt', '=', new Date(claim.claimedAt))
    .executeTakeFirst()
  return result.numUpdatedRows === 1n
}

/** Gives a claim back after the call failed: the same key may try again. */
export async function releaseKey(db: Store, key: KeyOf, claimedAt: Instant): Promise<void> {
  await of(db.deleteFrom('idempotencyKeys'), key)
    .where('answer', 'is', null)
    .where('createdAt', '=', new Date(claimedAt))
    .execute()
}

/** What the engine's former self had under way will have no answer: the same keys may try again. Returns how many. */
export async function releaseKeysOfEngine(db: Store, engineId: string): Promise<number> {
  const result = await db
    .deleteFrom('idempotencyKeys')
    .where('engineId', '=', engineId)
    .where('answer', 'is', null)
    .where('atMostOnce', '=', false)
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

const of = <Q extends { where(column: never, op: '=', value: string): Q }>(
  query: Q,
  key: KeyOf,
): Q =>
  query
    .where('orgId' as never, '=', key.orgId)
    .where('procedure' as never, '=', key.procedure)
    .where('key' as never, '=', key.key)

/** Deletes at most `limit` keys older than `before`; returns how many. */
export async function pruneKeys(db: Store, before: Instant, limit: number): Promise<number> {
  const result = await db
    .deleteFrom('idempotencyKeys')
    .where((eb) =>
      eb(
        eb.refTuple('orgId', 'procedure', 'key'),
        'in',
        eb
          .selectFrom('idempotencyKeys')
          .select(['orgId', 'procedure', 'key'])
          .where('createdAt', '<', new Date(before))
          .limit(limit)
          .$asTuple('orgId', 'procedure', 'key'),
      ),
    )
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

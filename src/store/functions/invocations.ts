// History of invocations (FN-7): appended in batches, read by page, pruned by age.
import { sql } from 'kysely'
import type { Store, Tx } from '#store/connect.ts'

export type InvocationRow = {
  id: string
  orgId: string
  functionId: string
  functionName: string
  version: number
  /** The record's id; null when no node took it. */
  nodeId: string | null
  /** What the node is called. */
  nodeName: string | null
  trustTier: string | null
  startedAt: Date
  durationMs: number
  ok: boolean
  exitCode: number | null
  reason: string | null
  error: string | null
  memPeakMb: number | null
  fuelUsed: number | null
  stdoutBytes: number
  stderrBytes: number
}

/** A statement holds 65,535 parameters, a row 18. */
const ROWS_MAX = 1_000
/** One pruning statement: short enough that it holds up nobody. */
const PRUNE_MAX = 10_000

export async function insertInvocations(db: Store, rows: readonly InvocationRow[]): Promise<void> {
  for (let at = 0; at < rows.length; at += ROWS_MAX)
    await db
      .insertInto('invocations')
      .values(rows.slice(at, at + ROWS_MAX))
      // A batch that was sent twice because its first answer was lost.
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute()
}

/** Newest first; `before` is the last id of the page before. */
export async function listInvocations(
  db: Store | Tx,
  of: { orgId: string; functionId: string },
  page: { before: string | undefined; limit: number },
): Promise<InvocationRow[]> {
  return db
    .selectFrom('invocations')
    .selectAll()
    .where('orgId', '=', of.orgId)
    .where('functionId', '=', of.functionId)
    .$if(page.before !== undefined, (q) => q.where('id', '<', page.before ?? ''))
    .orderBy('id', 'desc')
    .limit(page.limit)
    .execute()
}

/** Drops some of what began before `before`; returns how many. Call again while it drops PRUNE_MAX. */
export async function pruneInvocations(db: Store, before: Date): Promise<number> {
  const { rows } = await sql`
    delete from invocations where id in (
      select id from invocations where started_at < ${before} order by started_at limit ${PRUNE_MAX}
    ) returning id
  `.execute(db)
  return rows.length
}

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

/** A batch of a busy engine's second; more are several statements. */
const ROWS_MAX = 2_000
/** One pruning statement: short enough that it holds up nobody. */
const PRUNE_MAX = 10_000

/** All rows in one parameter: a statement with one for each value costs an engine more than the invocation itself. */
export async function insertInvocations(db: Store, rows: readonly InvocationRow[]): Promise<void> {
  for (let at = 0; at < rows.length; at += ROWS_MAX)
    await sql`
      insert into invocations (id, org_id, function_id, function_name, version, node_id, node_name,
        trust_tier, started_at, duration_ms, ok, exit_code, reason, error, mem_peak_mb, fuel_used,
        stdout_bytes, stderr_bytes)
      select * from json_to_recordset(${JSON.stringify(rows.slice(at, at + ROWS_MAX))}::json) as r (
        "id" text, "orgId" text, "functionId" text, "functionName" text, "version" integer,
        "nodeId" text, "nodeName" text, "trustTier" text, "startedAt" timestamptz,
        "durationMs" integer, "ok" boolean, "exitCode" integer, "reason" text, "error" text,
        "memPeakMb" integer, "fuelUsed" bigint, "stdoutBytes" bigint, "stderrBytes" integer
      )
      -- A batch that was sent twice because its first answer was lost.
      on conflict (id) do nothing
    `.execute(db)
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

// compute.functions.invocations: the history, newest first. The last 200 ms may not be in it yet (FN-7).
import { invocations as contract } from '#api/functions.ts'
import { functionByName } from '#store/functions/functions.ts'
import { type InvocationRow, listInvocations } from '#store/functions/invocations.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const invocations = handleTx(contract, async (call, input) => {
  const row = await functionByName(call.tx, call.orgId, input.name)
  if (!row) throw noSuchFunction(input.name)
  const page = { before: input.cursor, limit: input.limit + 1 }
  const rows = await listInvocations(call.tx, row.id, page)
  const shown = rows.slice(0, input.limit)
  return {
    invocations: shown.map(toRecord),
    next_cursor: rows.length > shown.length ? (shown.at(-1)?.id ?? null) : null,
  }
})

const toRecord = (row: InvocationRow) => ({
  id: row.id,
  version: row.version,
  node_id: row.nodeName,
  trust_tier: row.trustTier,
  started_at: row.startedAt.toISOString(),
  duration_ms: row.durationMs,
  ok: row.ok,
  exit_code: row.exitCode,
  reason: row.reason,
  error: row.error,
})

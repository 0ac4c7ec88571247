// compute.functions.invocations: the history, newest first. The last 200 ms may not be in it yet (FN-7).
import { invocations as contract } from '#api/functions.ts'
import { functionByName } from '#store/functions/functions.ts'
import { type InvocationRow, listInvocations } from '#store/functions/invocations.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'
import { pageOf } from '#engine/records/page.ts'

export const invocations = handleTx(contract, async (call, input) => {
  const { tx, orgId } = call
  const row = await functionByName(tx, orgId, input.name)
  if (!row) throw noSuchFunction(input.name)
  const page = { before: input.cursor, limit: input.limit + 1 }
  const rows = await listInvocations(tx, { orgId, functionId: row.id }, page)
  const { shown, nextCursor } = pageOf(rows, input.limit, ({ id }) => id)
  return { invocations: shown.map(toRecord), next_cursor: nextCursor }
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
  fuel_used: row.fuelUsed,
})

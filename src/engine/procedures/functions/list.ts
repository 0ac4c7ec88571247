// compute.functions.list: the org's functions by name.
import { list as contract } from '#api/functions.ts'
import { listFunctions } from '#store/functions/functions.ts'
import { toFunctionRecord } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const list = handleTx(contract, async (call, input) => {
  const page = { after: input.cursor, limit: input.limit + 1 }
  const rows = await listFunctions(call.tx, call.orgId, page)
  const shown = rows.slice(0, input.limit)
  return {
    functions: shown.map(toFunctionRecord),
    next_cursor: rows.length > shown.length ? (shown.at(-1)?.name ?? null) : null,
  }
})

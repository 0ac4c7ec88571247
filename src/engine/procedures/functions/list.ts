// compute.functions.list: the org's functions by name.
import { list as contract } from '#api/functions.ts'
import { listFunctions } from '#store/functions/functions.ts'
import { toFunctionRecord } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'
import { pageOf } from '#engine/records/page.ts'

export const list = handleTx(contract, async (call, input) => {
  const page = { after: input.cursor, limit: input.limit + 1 }
  const rows = await listFunctions(call.tx, call.orgId, page)
  const { shown, nextCursor } = pageOf(rows, input.limit, ({ name }) => name)
  return { functions: shown.map(toFunctionRecord), next_cursor: nextCursor }
})

// compute.functions.get: one function with its versions, the newest first.
import { get as contract } from '#api/functions.ts'
import { functionByName, versionsOf } from '#store/functions/functions.ts'
import { noSuchFunction, toFunctionRecord, toVersionRecord } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const get = handleTx(contract, async (call, input) => {
  const { tx, orgId } = call
  const row = await functionByName(tx, orgId, input.name)
  if (!row) throw noSuchFunction(input.name)
  const versions = await versionsOf(tx, { orgId, functionId: row.id })
  return { function: toFunctionRecord(row), versions: versions.map(toVersionRecord) }
})

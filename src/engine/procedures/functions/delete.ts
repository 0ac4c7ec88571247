// compute.functions.delete: what runs ends undisturbed; its slots go when it has ended.
import { remove as contract } from '#api/functions.ts'
import { deleteFunction, functionByName, lockFunction } from '#store/functions/functions.ts'
import { noSuchFunction, toFunctionRecord } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const remove = handleTx(contract, async (call, input) => {
  const { tx, orgId } = call
  const id = await lockFunction(tx, orgId, input.name)
  const row = id === undefined ? undefined : await functionByName(tx, orgId, input.name)
  if (!row) throw noSuchFunction(input.name)
  await deleteFunction(tx, { orgId, functionId: row.id })
  await call.audit(tx, {
    kind: 'function.deleted',
    subject: row.id,
    data: { name: row.name, version: row.version },
  })
  call.afterCommit(() => call.engine.invoker.changed({ kind: 'function', id: row.id, version: 0 }))
  return { function: toFunctionRecord(row) }
})

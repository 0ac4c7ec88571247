// compute.functions.rollback: an earlier version becomes current; nothing is prepared or copied.
import { rollback as contract } from '#api/functions.ts'
import { AppError } from '#lib/error.ts'
import {
  functionByName,
  lockFunction,
  setCurrentVersion,
  type VersionRow,
  versionsOf,
} from '#store/functions/functions.ts'
import { noSuchFunction, toFunctionRecord } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const rollback = handleTx(contract, async (call, input) => {
  const { tx, orgId, engine } = call
  const { name } = input
  const id = await lockFunction(tx, orgId, name)
  if (id === undefined) throw noSuchFunction(name)
  const versions = await versionsOf(tx, { orgId, functionId: id })
  const from = versions.find(({ current }) => current)?.version ?? 0
  const to = target(versions, { name, from, wanted: input.version })
  const now = new Date(engine.clock.now())
  await setCurrentVersion(tx, { orgId, functionId: id, version: to.version, now })
  await call.audit(tx, {
    kind: 'function.rolled-back',
    subject: id,
    data: { name, from, version: to.version },
  })
  const row = await functionByName(tx, orgId, name)
  if (!row) throw noSuchFunction(name)
  call.afterCommit(() => engine.invoker.changed({ kind: 'function', id, version: to.version }))
  return { function: toFunctionRecord(row) }
})

/** The wanted version, or the newest before the current one. */
function target(
  versions: readonly VersionRow[],
  of: { name: string; from: number; wanted: number | undefined },
): VersionRow {
  const { name, from, wanted } = of
  const found = versions.find(({ version }) =>
    wanted === undefined ? version < from : version === wanted,
  )
  if (found) return found
  const kept = versions.map(({ version }) => version).join(', ')
  if (wanted === undefined)
    throw new AppError('INVALID_STATE', `${name} has no version before ${from}`, {
      details: { reason: 'NO_EARLIER_VERSION', next: `These are kept: ${kept}` },
    })
  throw new AppError('NOT_FOUND', `${name} has no version ${wanted}; these are kept: ${kept}`, {
    details: { reason: 'NO_SUCH_VERSION', next: 'Name one of them' },
  })
}

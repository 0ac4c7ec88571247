import { revokeKey as contract } from '#api/access.ts'
import { handleTx } from '#engine/handle.ts'
import { orgKeyRecordOf } from '#engine/records/org-key.ts'
import { AppError } from '#lib/error.ts'
import { deleteOrgKey, findOrgKey } from '#store/auth-keys.ts'

export const revokeKey = handleTx(contract, async (call, { id }) => {
  const { engine, tx, orgId } = call
  const key = await findOrgKey(tx, { orgId, id })
  if (!key)
    throw new AppError('NOT_FOUND', `No API key ${id} in this organization`, {
      details: { reason: 'KEY_NOT_FOUND', next: 'See `ccp auth keys list`' },
    })
  await deleteOrgKey(tx, { orgId, id })
  await call.audit(tx, { kind: 'key.revoked', subject: id, data: { name: key.name } })
  call.afterCommit(() => engine.auth.keys.drop(id))
  return { key: orgKeyRecordOf(key) }
})

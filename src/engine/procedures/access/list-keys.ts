import { listKeys as contract } from '#api/access.ts'
import { KEYS_LISTED_MAX } from '#core/access/limits.ts'
import { handleTx } from '#engine/handle.ts'
import { orgKeyRecordOf } from '#engine/records/org-key.ts'
import { listOrgKeys } from '#store/auth-keys.ts'

/** The newest first. */
export const listKeys = handleTx(contract, async ({ tx, orgId }) => ({
  keys: (await listOrgKeys(tx, orgId, KEYS_LISTED_MAX)).map(orgKeyRecordOf),
}))

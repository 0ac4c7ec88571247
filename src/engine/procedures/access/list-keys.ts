import { listKeys as contract } from '#api/access.ts'
import { handleTx } from '#engine/handle.ts'
import { orgKeyRecordOf } from '#engine/records/org-key.ts'
import { listOrgKeys } from '#store/auth-keys.ts'

/** The newest first. An org with more keys than a person can look through revokes some. */
const KEYS_MAX = 1_000

export const listKeys = handleTx(contract, async ({ tx, orgId }) => ({
  keys: (await listOrgKeys(tx, orgId, KEYS_MAX)).map(orgKeyRecordOf),
}))

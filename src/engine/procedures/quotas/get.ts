import { get as contract } from '#api/quotas.ts'
import { handleTx } from '#engine/handle.ts'
import { quotaRecordOf } from '#engine/records/quotas.ts'
import { findQuotas } from '#store/quotas.ts'

export const get = handleTx(contract, async ({ tx, orgId }) => ({
  quotas: quotaRecordOf(await findQuotas(tx, orgId)),
}))

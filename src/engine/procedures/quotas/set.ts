// compute.quotas.set: every engine goes by it at once; what runs already goes on.
import { set as contract } from '#api/quotas.ts'
import { handleTx } from '#engine/handle.ts'
import { quotaRecordOf } from '#engine/records/quotas.ts'
import { saveQuotas } from '#store/quotas.ts'

export const set = handleTx(contract, async (call, { invocationsAtOnce }) => {
  const { tx, orgId, engine } = call
  await saveQuotas(tx, { orgId, invocationsAtOnce, now: new Date(engine.clock.now()) })
  call.afterCommit(() => engine.invoker.changed({ kind: 'quota', orgId }))
  await call.audit(tx, { kind: 'quotas.set', subject: orgId, data: { invocationsAtOnce } })
  return { quotas: quotaRecordOf({ invocationsAtOnce }) }
})

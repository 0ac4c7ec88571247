// An org's quotas as the API shows them.
import type { z } from 'zod'
import type { quotaRecord } from '#api/quotas.ts'
import { INVOCATIONS_AT_ONCE } from '#core/function/limits.ts'
import type { Quotas } from '#store/quotas.ts'

export const quotaRecordOf = ({ invocationsAtOnce }: Quotas): z.infer<typeof quotaRecord> => ({
  invocations_at_once: invocationsAtOnce ?? INVOCATIONS_AT_ONCE,
  source: invocationsAtOnce === null ? 'default' : 'org',
})

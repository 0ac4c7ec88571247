// compute.quotas.*: how much of the platform an org may take at a time (AC-6).
import { z } from 'zod'
import { base, orgInput } from '#api/base.ts'
import { rangeField } from '#api/fields.ts'
import { INVOCATIONS_AT_ONCE_RANGE } from '#core/function/limits.ts'

export const quotaRecord = z.object({
  /** Invocations of the org that run or wait at one engine. */
  invocations_at_once: z.number(),
  /** `org`: a platform operator set it for this organization. */
  source: z.enum(['default', 'org']),
})

export const get = base
  .meta({ role: 'guest', tx: 'one', cli: 'quotas get', operator: true })
  .route({
    method: 'GET',
    path: '/v1/quotas',
    tags: ['quotas'],
    summary: 'What the org may take at a time',
  })
  .input(orgInput)
  .output(z.object({ quotas: quotaRecord }))

export const set = base
  .meta({ role: 'platform-operator', tx: 'one', cli: 'quotas set' })
  .route({
    method: 'PUT',
    path: '/v1/quotas',
    tags: ['quotas'],
    summary: 'Say what the org may take at a time',
  })
  .input(
    orgInput.extend({
      /** Null: the engine's default again. */
      invocationsAtOnce: rangeField('invocationsAtOnce', INVOCATIONS_AT_ONCE_RANGE).nullable(),
    }),
  )
  .output(z.object({ quotas: quotaRecord }))

// compute.events.*: who changed what, and from where (OP-6).
import { z } from 'zod'
import { base, instant, orgInput, pageInput } from '#api/base.ts'
import { idCursorField } from '#api/fields.ts'

export const eventRecord = z.object({
  id: z.string(),
  at: instant,
  /** 'node.enrolled', 'function.deployed', … */
  kind: z.string(),
  actor_kind: z.enum(['user', 'api-key', 'node', 'engine']),
  actor: z.string(),
  ip: z.string().nullable(),
  request_id: z.string().nullable(),
  subject: z.string().nullable(),
  data: z.record(z.string(), z.unknown()),
})

export const list = base
  .meta({ role: 'guest', tx: 'one', cli: 'events' })
  .route({
    method: 'GET',
    path: '/v1/events',
    tags: ['events'],
    summary: 'The audit trail, newest first',
  })
  .input(
    orgInput
      .extend(pageInput(500, 50).shape)
      .extend({ cursor: idCursorField('evt'), subject: z.string().max(64).optional() }),
  )
  .output(z.object({ events: z.array(eventRecord), next_cursor: z.string().nullable() }))

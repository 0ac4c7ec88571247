// compute.placement.*: why work runs where it does, or nowhere (PL-3).
import { z } from 'zod'
import { base, orgInput } from '#api/base.ts'
import { nameField, rangeField, regionField } from '#api/fields.ts'
import { CPU_MILLIS, MEM_MB } from '#core/function/limits.ts'
import { RUNTIMES } from '#core/node/node.ts'

export const explain = base
  .meta({ role: 'guest', tx: 'one', cli: 'placement explain' })
  .route({
    method: 'GET',
    path: '/v1/placement/explain',
    tags: ['placement'],
    summary: 'Each node with the first check that it fails for a workload',
  })
  .input(
    orgInput.extend({
      /** A deployed function; or describe the workload by the fields below. */
      name: nameField('name').optional(),
      runtime: z
        .enum(RUNTIMES, {
          error: 'runtime must be wasm, microvm or container',
        })
        .default('wasm'),
      cpuMillis: z.coerce
        .number()
        .pipe(rangeField('cpuMillis', CPU_MILLIS))
        .default(CPU_MILLIS.default),
      memMb: z.coerce.number().pipe(rangeField('memMb', MEM_MB)).default(MEM_MB.default),
      allowCommunity: z.stringbool().or(z.boolean()).default(false),
      region: regionField.optional(),
    }),
  )
  .output(
    z.object({
      placeable: z.boolean(),
      summary: z.string(),
      nodes: z.array(
        z.object({
          id: z.string(),
          node_id: z.string(),
          fits: z.boolean(),
          check: z.string().nullable(),
          bucket: z.string().nullable(),
          message: z.string().nullable(),
        }),
      ),
    }),
  )

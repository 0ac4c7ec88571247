// access.*: who is calling, the org's API keys and invitations (AC-1, AC-5).
import { z } from 'zod'
import { base, instant, orgInput, roleField, ROLES } from '#api/base.ts'
import { labelField, rangeField } from '#api/fields.ts'

export const whoami = base
  .meta({ role: 'signed-in', tx: 'none', cli: 'auth whoami' })
  .route({
    method: 'GET',
    path: '/v1/whoami',
    tags: ['access'],
    summary: 'Who the credential is, and its orgs',
  })
  .input(z.object({}))
  .output(
    z.object({
      kind: z.enum(['user', 'api-key']),
      id: z.string(),
      name: z.string(),
      orgs: z.array(
        z.object({ id: z.string(), slug: z.string(), name: z.string(), role: z.enum(ROLES) }),
      ),
      platform_operator: z.boolean(),
    }),
  )

const keyRecord = z.object({
  id: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  created_at: instant,
  expires_at: instant.nullable(),
  last_used_at: instant.nullable(),
})

export const createKey = base
  .meta({ role: 'admin', tx: 'one', idempotency: 'once', cli: 'auth keys create' })
  .route({
    method: 'POST',
    path: '/v1/keys',
    tags: ['access'],
    summary: 'An API key of the org, shown once',
  })
  .input(
    orgInput.extend({
      name: labelField.min(1, 'name is required'),
      /** What the key may do: no more than its maker's own role (D50). */
      role: roleField.default('member'),
      expiresInDays: rangeField('expiresInDays', { min: 1, max: 3650 }).optional(),
    }),
  )
  .output(
    z.object({ key: keyRecord, secret: z.string().nullable(), notice: z.string().optional() }),
  )

export const listKeys = base
  .meta({ role: 'admin', tx: 'one', cli: 'auth keys list' })
  .route({
    method: 'GET',
    path: '/v1/keys',
    tags: ['access'],
    summary: "The org's API keys, never their secrets",
  })
  .input(orgInput)
  .output(z.object({ keys: z.array(keyRecord) }))

export const revokeKey = base
  .meta({ role: 'admin', tx: 'one', cli: 'auth keys revoke' })
  .route({
    method: 'DELETE',
    path: '/v1/keys/{id}',
    tags: ['access'],
    summary: 'End an API key now',
  })
  .input(orgInput.extend({ id: z.string().min(1).max(64) }))
  .output(z.object({ key: keyRecord }))

export const invite = base
  .meta({ role: 'owner', tx: 'one', idempotency: 'once', cli: 'auth invite' })
  .route({
    method: 'POST',
    path: '/v1/invitations',
    tags: ['access'],
    summary: 'A link by which one person joins the org',
  })
  .input(
    orgInput.extend({
      email: z.email('email must be an e-mail address'),
      role: roleField.default('member'),
    }),
  )
  .output(
    z.object({
      id: z.string(),
      link: z.string().nullable(),
      expires_at: instant,
      notice: z.string().optional(),
    }),
  )

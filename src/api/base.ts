// What every procedure of the contract says of itself, and the errors that any of them may answer (D52).
import { oc } from '@orpc/contract'
import { z } from 'zod'
import { statusOf, type Code } from '#lib/error.ts'

/** Roles of an org, the weaker first (AC-4): guest reads; member deploys and invokes; admin nodes and keys; owner people. */
export const ROLES = ['guest', 'member', 'admin', 'owner'] as const
export type Role = (typeof ROLES)[number]
export const roleField = z.enum(ROLES, { error: `role must be one of ${ROLES.join(', ')}` })

export type Meta = {
  /** The least role that may call it; 'signed-in' needs no org, 'platform-operator' stands above all (AC-4). */
  role: Role | 'signed-in' | 'platform-operator'
  /** 'one': the kernel opens one transaction; 'none': waiting and streaming verbs hold no connection. */
  tx: 'one' | 'none'
  /**
   * Creates take an Idempotency-Key. 'once': the answer holds a secret and is never stored (D40). 'at-most-once': the call
   * acts beyond the database; a key whose engine died in the middle is never run again.
   */
  idempotency?: 'replay' | 'once' | 'at-most-once'
  /** The command of `ccp` that calls it, or why there is none. */
  cli: string | { none: string }
  /** Requests a minute an org (AC-3); undefined: only the general limit. */
  limit?: 'enroll' | 'deploy' | 'invoke'
  /** Fields whose text is for a guest and never stored: any characters go (kernel-text.ts). */
  rawText?: readonly string[]
  /** The platform operator may call it for an org that they are no member of (AC-4): some reads. */
  operator?: true
}

const data = z
  .looseObject({ reason: z.string().optional(), next: z.string().optional() })
  .optional()

type ErrorMap = { [C in Code]: { status: number; data: typeof data } }
const errors = Object.fromEntries(
  Object.entries(statusOf).map(([code, status]) => [code, { status, data }]),
) as ErrorMap

/** Every procedure begins here. */
export const base = oc
  .$meta<Meta>({ role: 'owner', tx: 'none', cli: { none: 'unset' } })
  .errors(errors)

/** Every `compute.*` input has it (AC-2): the id of the org, or its slug. */
export const orgInput = z.object({
  orgId: z
    .string({ error: 'orgId is required: the organization that the call is for' })
    .min(1)
    .max(64),
})

/** A whole number from 1 that a query string may carry as text. */
const wholeText = (field: string, max: number): z.ZodCoercedNumber<unknown> => {
  const rule = `${field} must be a whole number from 1 to ${max}`
  return z.coerce.number({ error: rule }).int(rule).min(1, rule).max(max, rule)
}

/** One page of a list: `cursor` is what the page before gave as `next_cursor`. */
export const pageInput = (
  max: number,
  usual: number,
): z.ZodObject<{
  limit: z.ZodDefault<z.ZodCoercedNumber<unknown>>
  cursor: z.ZodOptional<z.ZodString>
}> =>
  z.object({
    limit: wholeText('limit', max).default(usual),
    cursor: z.string().max(200).optional(),
  })

/** ISO 8601, UTC (D51). */
export const instant = z.string()

// Field rules that several nouns share. Each refusal names the field, the value's fault and what would be right.
import { z } from 'zod'
import { NAME_LENGTH_MAX, NAME_PATTERN, NAME_RULE } from '#core/name.ts'
import type { IdPrefix } from '#lib/id.ts'
import { LABEL_MAX, REGION_MAX } from '#core/node/limits.ts'
import { TRUST_TIERS } from '#core/node/node.ts'

/** A node id or a function's name. */
export const nameField = (field: string): z.ZodString =>
  z
    .string({ error: `${field} is required: ${NAME_RULE}` })
    .max(NAME_LENGTH_MAX, `${field} is too long: ${NAME_RULE}`)
    .regex(NAME_PATTERN, `${field} must be ${NAME_RULE}`)

/** A whole number in a range; text, fractions, null and absence (where there is no default) are refused. */
export const rangeField = (field: string, range: { min: number; max: number }): z.ZodNumber => {
  const rule = `${field} must be a whole number from ${range.min} to ${range.max}`
  return z.number({ error: rule }).int(rule).min(range.min, rule).max(range.max, rule)
}

export const labelField = z.string().max(LABEL_MAX, `label has at most ${LABEL_MAX} characters`)
export const regionField = z
  .string()
  .max(REGION_MAX)
  .regex(NAME_PATTERN, 'region must be lowercase letters, digits and dashes, e.g. blr1')
export const trustTierField = z.enum(TRUST_TIERS, {
  error: "trustTier must be 'secure' (hardware you operate) or 'community' (somebody else's)",
})
export const idField = z.string({ error: 'id is required: the id of the record' }).min(1).max(64)
/** Where a page of records that are ordered by their id begins: another text would be compared with ids and mean nothing. */
export const idCursorField = (prefix: IdPrefix): z.ZodOptional<z.ZodString> =>
  z
    .string()
    .regex(
      new RegExp(`^${prefix}_[0-9a-z]{26}$`),
      `cursor must be what the page before gave as next_cursor: ${prefix}_ and 26 letters and digits`,
    )
    .optional()
/** D41: the version the caller last saw; stale is CONFLICT. */
export const versionField = z.number().int().nonnegative().optional()

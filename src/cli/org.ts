// Which organization a command is for: --org-id, CCP_ORG_ID, the one chosen by `ccp auth use`, the only one.
import type { Cli } from '#cli/cli.ts'
import { AppError } from '#lib/error.ts'

/** What a command is about to send, but for the org. */
export type Sending = { procedure: string; fields: object }

/**
 * What is wrong with the fields is told first: nobody signs in or starts an engine to hear of a typo.
 * Errors: INVALID of the fields; INVALID `ORG_REQUIRED` listing the orgs; FORBIDDEN `NO_ORG`.
 */
export async function resolveOrg(
  cli: Cli,
  flag: string | undefined,
  sending?: Sending,
): Promise<string> {
  if (sending) {
    const { checkFields } = await import('#cli/call.ts')
    checkFields(sending.procedure, { orgId: 'not known yet', ...sending.fields })
  }
  const known = flag ?? cli.settings.orgId ?? (await cli.target()).orgId
  if (known !== undefined) return known
  const { orgs } = await (await cli.api()).access.whoami({})
  const [only, second] = orgs
  if (only === undefined)
    throw new AppError('FORBIDDEN', 'you are a member of no organization', {
      details: { reason: 'NO_ORG', next: 'Ask an owner for an invitation: ccp auth invite EMAIL' },
    })
  if (second === undefined) return only.id
  const list = orgs.map((org) => org.slug)
  const chosen = await cli.ask.choose('Which organization?', list)
  if (chosen !== undefined) return chosen
  throw new AppError(
    'INVALID',
    `you are a member of ${orgs.length} organizations: ${list.join(', ')}`,
    {
      details: {
        reason: 'ORG_REQUIRED',
        next: `Say which: --org-id ${only.slug}, CCP_ORG_ID, or \`ccp auth use ${only.slug}\``,
      },
    },
  )
}

import { buildCommand } from '@stricli/core'
import type { Role } from '#api/base.ts'
import type { Cli } from '#cli/cli.ts'
import { argument, common, docs, text, type CommonFlags, ROLE_NAMES } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago } from '#cli/output.ts'

type Flags = CommonFlags & { readonly role?: string }

export const invite = buildCommand<Flags, [email: string], Cli>({
  docs: docs({
    brief: 'Print a link by which one person joins the organization',
    more: 'The link is printed once. Whoever has it can join with this address: send it privately.',
    examples: ['ccp auth invite ada@example.com', 'ccp auth invite ada@example.com --role admin'],
  }),
  parameters: {
    flags: { ...common, role: text(`${ROLE_NAMES.join(', ')} (default member)`, 'role') },
    positional: { kind: 'tuple', parameters: [argument('email', 'The person’s address')] },
  },
  async func({ json, orgId, role }, email) {
    const org = await resolveOrg(this, orgId)
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked by the contract before it is sent
    const input = { orgId: org, email, ...(role === undefined ? {} : { role: role as Role }) }
    const made = await (await this.api()).access.invitations.create(input)
    if (json) return this.out.json(made)
    if (made.link === null)
      return this.out.note(
        made.notice ?? 'The link was shown before and is not kept: invite again.',
      )
    this.out.line(made.link)
    this.out.note(`For ${email}, once; it expires ${ago(made.expires_at, this.clock.now())}`)
  },
})

import { buildCommand } from '@stricli/core'
import type { Role } from '#api/base.ts'
import type { Cli } from '#cli/cli.ts'
import { argument, common, docs, number, text, type CommonFlags, ROLE_NAMES } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly role?: string; readonly expiresInDays?: number }

export const createKey = buildCommand<Flags, [name: string], Cli>({
  docs: docs({
    brief: 'Make an API key of the organization, printed once',
    examples: [
      'ccp auth keys create ci',
      'CCP_API_KEY=$(ccp auth keys create ci --role guest --expires-in-days 30)',
    ],
  }),
  parameters: {
    flags: {
      ...common,
      role: text(
        `What it may do: ${ROLE_NAMES.join(', ')} (default member), at most your own role`,
        'role',
      ),
      expiresInDays: number('Days until it ends, 1–3650 (default: it does not)'),
    },
    positional: { kind: 'tuple', parameters: [argument('name', 'What it is for')] },
  },
  async func({ json, orgId, role, expiresInDays }, name) {
    const org = await resolveOrg(this, orgId)
    const made = await (
      await this.api()
    ).access.keys.create({
      orgId: org,
      name,
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked by the contract before it is sent
      ...(role === undefined ? {} : { role: role as Role }),
      ...(expiresInDays === undefined ? {} : { expiresInDays }),
    })
    if (json) return this.out.json(made)
    if (made.secret === null)
      return this.out.note(made.notice ?? 'The key was shown before and is not kept: make another.')
    // The key alone on stdout, so that a shell can take it.
    this.out.line(made.secret)
    this.out.note(`${made.key.name} (${made.key.id}), role ${made.key.role}; shown this once`)
  },
})

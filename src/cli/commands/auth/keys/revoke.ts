import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { confirmed } from '#cli/confirm.ts'
import { argument, common, docs, yes, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly yes?: boolean }

export const revokeKey = buildCommand<Flags, [id: string], Cli>({
  docs: docs({
    brief: 'End an API key now',
    examples: ['ccp auth keys revoke KEY-ID --yes'],
  }),
  parameters: {
    flags: { ...common, yes },
    aliases: { y: 'yes' },
    positional: { kind: 'tuple', parameters: [argument('id', 'The id of `ccp auth keys list`')] },
  },
  async func({ json, orgId, yes: sure }, id) {
    const org = await resolveOrg(this, orgId)
    if (!(await confirmed(this, sure, `End the key ${id}? What uses it stops working.`))) return
    const gone = await (await this.api()).access.keys.revoke({ orgId: org, id })
    if (json) return this.out.json(gone)
    this.out.line(`Ended ${gone.key.name} (${gone.key.id})`)
  },
})

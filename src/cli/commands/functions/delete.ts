import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { confirmed } from '#cli/confirm.ts'
import { argument, common, docs, yes, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly yes?: boolean }

export const remove = buildCommand<Flags, [name: string], Cli>({
  docs: docs({
    brief: 'Delete a function and its versions',
    more: 'Running invocations end undisturbed.',
    examples: ['ccp functions delete word-count', 'ccp functions delete word-count --yes'],
  }),
  parameters: {
    flags: { ...common, yes },
    aliases: { y: 'yes' },
    positional: { kind: 'tuple', parameters: [argument('name', 'The function’s name')] },
  },
  async func({ json, orgId, yes: sure }, name) {
    const org = await resolveOrg(this, orgId)
    if (!(await confirmed(this, sure, `Delete the function ${name} and all its versions?`))) return
    const gone = await (await this.api()).compute.functions.delete({ orgId: org, name })
    if (json) return this.out.json(gone)
    this.out.line(`Deleted ${gone.function.name} (${gone.function.id})`)
  },
})

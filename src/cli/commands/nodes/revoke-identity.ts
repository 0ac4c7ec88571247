import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { printToken, serverOf } from '#cli/commands/nodes/present.ts'
import { confirmed } from '#cli/confirm.ts'
import { argument, common, docs, text, yes, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly yes?: boolean; readonly server?: string }

export const revokeIdentity = buildCommand<Flags, [id: string], Cli>({
  docs: docs({
    brief: 'End a node’s key and certificates, and print a new token once',
    more: 'For a node that lost its data folder (KEY_MISMATCH), or whose key may be known to others.',
    examples: ['ccp nodes revoke-identity node-a1 --yes'],
  }),
  parameters: {
    flags: {
      ...common,
      yes,
      server: text('What the printed command line dials, when it is not the usual', 'host:port'),
    },
    aliases: { y: 'yes' },
    positional: { kind: 'tuple', parameters: [argument('node', 'Node id or record id')] },
  },
  async func({ json, orgId, yes: sure, server }, id) {
    const org = await resolveOrg(this, orgId)
    const question = `End the identity of ${id}? Its session ends until it has the new token.`
    if (!(await confirmed(this, sure, question))) return
    const made = await (await this.api()).compute.nodes.revokeIdentity({ orgId: org, id })
    if (json) return this.out.json(made)
    this.out.line(
      `${made.node.node_id} has identity generation ${made.node.identity_generation}; earlier ones never work again`,
    )
    printToken(this, { ...made, server: await serverOf(this, server) })
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { confirmed } from '#cli/confirm.ts'
import { argument, common, docs, yes, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly yes?: boolean }

export const revoke = buildCommand<Flags, [id: string], Cli>({
  docs: docs({
    brief: 'Remove a node; its credential never registers again',
    more: 'Drain it first to let running work end. The same node id can be enrolled again afterwards.',
    examples: ['ccp nodes revoke node-a1', 'ccp nodes revoke node-a1 --yes'],
  }),
  parameters: {
    flags: { ...common, yes },
    aliases: { y: 'yes' },
    positional: { kind: 'tuple', parameters: [argument('node', 'Node id or record id')] },
  },
  async func({ json, orgId, yes: sure }, id) {
    const org = await resolveOrg(this, orgId)
    if (!(await confirmed(this, sure, `Revoke ${id}? Its session ends and its work moves.`))) return
    const { node } = await (await this.api()).compute.nodes.revoke({ orgId: org, id })
    if (json) return this.out.json({ node })
    this.out.line(`Revoked ${node.node_id} (${node.id})`)
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { tierText } from '#cli/commands/nodes/present.ts'
import { argument, common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import type { TrustTier } from '#core/node/node.ts'

export const setTier = buildCommand<CommonFlags, [id: string, tier: string], Cli>({
  docs: docs({
    brief: 'Change a node’s trust tier at its next REGISTER',
    more: 'What runs there is not evicted, neither now nor then.',
    examples: ['ccp nodes set-tier node-a1 community'],
  }),
  parameters: {
    flags: common,
    positional: {
      kind: 'tuple',
      parameters: [
        argument('node', 'Node id or record id'),
        argument('tier', 'secure or community', ['secure', 'community']),
      ],
    },
  },
  async func({ json, orgId }, id, tier) {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked by the contract before it is sent
    const input = { id, trustTier: tier as TrustTier }
    const procedure = 'compute.nodes.setTrustTier'
    const org = await resolveOrg(this, orgId, { procedure, fields: input })
    const { node } = await (await this.api()).compute.nodes.setTrustTier({ orgId: org, ...input })
    if (json) return this.out.json({ node })
    this.out.line(`${node.node_id} is ${tierText(node)}`)
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { tierText } from '#cli/commands/nodes/present.ts'
import { argument, common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { TRUST_TIERS } from '#core/node/node.ts'
import { AppError } from '#lib/error.ts'

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
        argument('tier', 'secure or community', TRUST_TIERS),
      ],
    },
  },
  async func({ json, orgId }, id, tier) {
    const trustTier = TRUST_TIERS.find((known) => known === tier)
    if (trustTier === undefined)
      throw new AppError('INVALID', `the tier must be ${TRUST_TIERS.join(' or ')}, not '${tier}'`, {
        details: { next: `ccp nodes set-tier ${id} community` },
      })
    const input = { id, trustTier }
    const org = await resolveOrg(this, orgId)
    const { node } = await (await this.api()).compute.nodes.setTrustTier({ orgId: org, ...input })
    if (json) return this.out.json({ node })
    this.out.line(`${node.node_id} is ${tierText(node)}`)
  },
})

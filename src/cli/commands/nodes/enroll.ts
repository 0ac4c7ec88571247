import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { printToken, serverOf } from '#cli/commands/nodes/present.ts'
import { argument, common, docs, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import type { TrustTier } from '#core/node/node.ts'

type Flags = CommonFlags & {
  readonly trustTier?: string
  readonly label?: string
  readonly region?: string
  readonly contributor?: string
  readonly server?: string
}

export const enroll = buildCommand<Flags, [nodeId: string], Cli>({
  docs: docs({
    brief: 'Make a node record and its one-time token',
    more: 'The token is printed once, with the command line that starts the agent. If it is lost, revoke the node and enroll it again.',
    examples: [
      'ccp nodes enroll node-a1 --trust-tier secure',
      'ccp nodes enroll garage --trust-tier community --contributor "Ada" --label "rack 3, spare box"',
    ],
  }),
  parameters: {
    positional: {
      kind: 'tuple',
      parameters: [argument('node-id', 'The name that the machine presents, such as node-a1')],
    },
    flags: {
      ...common,
      trustTier: text(
        'secure (hardware you operate) or community (somebody else’s); required',
        'tier',
      ),
      label: text('Free text for people', 'text'),
      region: text('Where it stands, such as blr1; pins placement', 'region'),
      contributor: text('Who contributed the hardware; community only', 'name'),
      server: text('What the printed command line dials, when it is not the usual', 'host:port'),
    },
    aliases: { t: 'trustTier' },
  },
  async func({ json, orgId, server, trustTier, ...fields }, nodeId) {
    const chosen =
      trustTier ??
      (await this.ask.choose('Whose hardware is it? (trust tier)', ['secure', 'community']))
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked by the contract before it is sent
    const input = { nodeId, trustTier: chosen as TrustTier, ...fields }
    const org = await resolveOrg(this, orgId, { procedure: 'compute.nodes.enroll', fields: input })
    const made = await (await this.api()).compute.nodes.enroll({ orgId: org, ...input })
    if (json) return this.out.json(made)
    this.out.line(`Enrolled ${this.out.style('bold', made.node.node_id)} (${made.node.id})`)
    printToken(this, { ...made, server: await serverOf(this, server) })
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { capacityText, stateText, tierText, usedText } from '#cli/commands/nodes/present.ts'
import { common, docs, type CommonFlags } from '#cli/flags.ts'
import { listNodes } from '#cli/list-pages.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago } from '#cli/output.ts'

export const list = buildCommand<CommonFlags, [], Cli>({
  docs: docs({
    brief: 'List the nodes of the organization',
    more: 'LAST SEEN is advisory: the engine that holds the session decides what may receive work.',
    examples: ['ccp nodes list', 'ccp nodes list --json'],
  }),
  parameters: { flags: common },
  async func({ json, orgId }) {
    const org = await resolveOrg(this, orgId)
    const nodes = await listNodes(await this.api(), org)
    if (json) return this.out.json({ nodes })
    if (nodes.length === 0)
      return this.out.line(
        'no nodes enrolled: run `ccp nodes enroll NODE-ID --trust-tier secure` to add one',
      )
    this.out.table(
      ['NODE', 'TIER', 'STATE', 'CAPACITY', 'USED', 'REGION', 'LABEL', 'LAST SEEN'],
      nodes.map((node) => [
        this.out.style('bold', node.node_id),
        tierText(node),
        stateText(this.out, node),
        capacityText(node),
        usedText(node),
        node.region ?? '-',
        node.label ?? '-',
        ago(node.last_seen_at, this.clock.now()),
      ]),
    )
  },
})

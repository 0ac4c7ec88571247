import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import {
  capacityText,
  jailText,
  stateText,
  tierText,
  usedText,
  type NodeRecord,
} from '#cli/commands/nodes/present.ts'
import { argument, common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago, cores } from '#cli/output.ts'

export const get = buildCommand<CommonFlags, [id: string], Cli>({
  docs: docs({
    brief: 'Show one node with its work and its commands',
    examples: ['ccp nodes get node-a1', 'ccp nodes get node-a1 --json'],
  }),
  parameters: {
    flags: common,
    positional: { kind: 'tuple', parameters: [argument('node', 'Node id or record id')] },
  },
  async func({ json, orgId }, id) {
    const org = await resolveOrg(this, orgId)
    const found = await (await this.api()).compute.nodes.get({ orgId: org, id })
    if (json) return this.out.json(found)
    const { node, work, commands } = found
    const now = this.clock.now()
    this.out.line(this.out.style('bold', node.node_id))
    this.out.pairs(describe(this, node))
    if (work.length > 0) {
      this.out.line('\nWork')
      this.out.table(
        ['FUNCTION', 'VERSION', 'CPU', 'MEMORY'],
        work.map((w) => [w.function, String(w.version), cores(w.cpu_millis), `${w.mem_mb} MB`]),
      )
    }
    if (commands.length > 0) {
      this.out.line('\nCommands')
      this.out.table(
        ['KIND', 'STATE', 'MADE', 'OUTPUT'],
        commands.map((c) => [c.kind, c.state, ago(c.created_at, now), firstLine(c.output)]),
      )
    }
  },
})

function describe(cli: Cli, node: NodeRecord): [string, string][] {
  const now = cli.clock.now()
  const { session } = node
  return [
    ['ID', node.id],
    ['Tier', tierText(node)],
    ['State', stateText(cli.out, node)],
    ...(node.unschedulable === null
      ? []
      : [['Takes no work', node.unschedulable.message] satisfies [string, string]]),
    ...(node.failure === null ? [] : [['Failure', node.failure] satisfies [string, string]]),
    ['Capacity', capacityText(node)],
    ['Used', usedText(node)],
    ['Label', node.label ?? '-'],
    ['Region', node.region ?? '-'],
    ['Contributor', node.contributor ?? '-'],
    ['Role, trust', `${node.role}, ${node.trust}`],
    ['Generation', `${node.generation}, observed ${node.observed_generation}`],
    ['Identity', `generation ${node.identity_generation}`],
    ['Version', `${node.version}, agent ${node.agent_version ?? '-'}`],
    ['Jail', jailText(node)],
    [
      'Session',
      session === null
        ? 'none yet'
        : `${session.transport}, epoch ${session.epoch}, ${session.disconnected_at === null ? `since ${ago(session.connected_at, now)}` : `ended ${ago(session.disconnected_at, now)}`}`,
    ],
    ['Last seen', `${ago(node.last_seen_at, now)} (advisory)`],
    ['Enrolled', ago(node.created_at, now)],
  ]
}

const firstLine = (text: string | null): string => (text ?? '').split('\n')[0]?.slice(0, 80) ?? ''

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { common, docs, flag, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import type { Runtime } from '#core/node/node.ts'

type Flags = CommonFlags & {
  readonly runtime?: string
  readonly cpuMillis?: number
  readonly memMb?: number
  readonly region?: string
  readonly allowCommunity?: boolean
}

/** Else a machine that did nothing for a second looks full for good. */
const IDLE_GIVES_WAY = 'What idle functions hold counts as taken, but gives way to an invocation'

export const explain = buildCommand<Flags, [name?: string], Cli>({
  docs: docs({
    brief: 'Show each node with the first check that it fails for a workload',
    more: 'Name a deployed function, or describe the workload by flags. The nearest miss comes first.',
    examples: [
      'ccp placement explain word-count',
      'ccp placement explain --cpu-millis 4000 --mem-mb 1024',
    ],
  }),
  parameters: {
    positional: {
      kind: 'tuple',
      parameters: [
        { parse: String, placeholder: 'function', brief: 'A deployed function', optional: true },
      ],
    },
    flags: {
      ...common,
      runtime: text('wasm (default), microvm or container', 'runtime'),
      cpuMillis: number('CPU in thousandths of a core'),
      memMb: number('Memory in MB'),
      region: text('Only nodes of this region', 'region'),
      allowCommunity: flag('Community nodes too'),
    },
  },
  async func({ json, orgId, runtime, ...workload }, name) {
    const input = {
      ...workload,
      ...(name === undefined ? {} : { name }),
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked by the contract before it is sent
      ...(runtime === undefined ? {} : { runtime: runtime as Runtime }),
    }
    const procedure = 'compute.placement.explain'
    const org = await resolveOrg(this, orgId, { procedure, fields: input })
    const verdict = await (await this.api()).compute.placement.explain({ orgId: org, ...input })
    if (json) return this.out.json(verdict)
    this.out.line(this.out.style(verdict.placeable ? 'green' : 'yellow', verdict.summary))
    if (verdict.nodes.length === 0) return
    this.out.line()
    this.out.table(
      ['NODE', 'FITS', 'CHECK', 'WHY NOT'],
      verdict.nodes.map((node) => [
        this.out.style('bold', node.node_id),
        node.fits ? this.out.style('green', 'yes') : 'no',
        node.check ?? '-',
        node.message ?? '',
      ]),
    )
    const full = verdict.nodes.some(({ check }) => check === 'cpu' || check === 'memory')
    if (!verdict.placeable && full) this.out.note(`  → ${IDLE_GIVES_WAY}`)
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { common, docs, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago } from '#cli/output.ts'

type Flags = CommonFlags & {
  readonly subject?: string
  readonly limit?: number
  readonly cursor?: string
}

export const events = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'Show who changed what, newest first',
    examples: ['ccp events', 'ccp events --subject node-a1 --limit 200 --json'],
  }),
  parameters: {
    flags: {
      ...common,
      subject: text('Only about this node, function, key …', 'id'),
      limit: number('How many, 1–500 (default 50)'),
      cursor: text('Go on where the page before ended', 'cursor'),
    },
  },
  async func({ json, orgId, ...page }) {
    const org = await resolveOrg(this, orgId)
    const found = await (await this.api()).compute.events.list({ orgId: org, ...page })
    if (json) return this.out.json(found)
    if (found.events.length === 0) return this.out.line('no events')
    this.out.table(
      ['WHEN', 'WHAT', 'SUBJECT', 'WHO', 'FROM', 'DATA'],
      found.events.map((event) => [
        ago(event.at, this.clock.now()),
        event.kind,
        event.subject ?? '-',
        `${event.actor_kind} ${event.actor}`,
        event.ip ?? '-',
        dataText(event.data),
      ]),
    )
    if (found.next_cursor !== null) this.out.note(`  → more: --cursor ${found.next_cursor}`)
  },
})

const dataText = (data: Record<string, unknown>): string =>
  Object.entries(data)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ')
    .slice(0, 120)

import { buildCommand } from '@stricli/core'
import type { z } from 'zod'
import type { eventRecord } from '#api/events.ts'
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
      subject: text('Only about this node, function or key, by name or id', 'name'),
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
        whoText(event),
        event.ip ?? '-',
        dataText(event.data),
      ]),
    )
    if (found.next_cursor !== null) this.out.note(`  → more: --cursor ${found.next_cursor}`)
  },
})

type EventRecord = z.infer<typeof eventRecord>

/** By name where the trail has it; the id stands in --json. */
function whoText({ actor_kind, actor, data }: EventRecord): string {
  const name = data['actor_name']
  return `${actor_kind} ${typeof name === 'string' && name !== '' ? name : actor}`
}

/** A hash is told by its beginning; who did it has a column of its own. */
const dataText = (data: Record<string, unknown>): string =>
  Object.entries(data)
    .filter(([name]) => name !== 'actor_name')
    .map(([name, value]) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name}=${/^[0-9a-f]{64}$/.test(text) ? text.slice(0, HASH_SHOWN) : shortened(text)}`
    })
    .join(' ')

const shortened = (text: string): string =>
  text.length > VALUE_MAX ? `${text.slice(0, VALUE_MAX - 1)}…` : text

/** As many digits as `functions get` shows. */
const HASH_SHOWN = 12
/** A value longer than this makes the table unreadable; --json has it whole. */
const VALUE_MAX = 60

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { argument, common, docs, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago } from '#cli/output.ts'
import { formatDuration } from '#lib/duration.ts'

type Flags = CommonFlags & { readonly limit?: number; readonly cursor?: string }

export const invocations = buildCommand<Flags, [name: string], Cli>({
  docs: docs({
    brief: 'Show the invocations of the last seven days, newest first',
    examples: [
      'ccp functions invocations word-count',
      'ccp functions invocations word-count --limit 500 --json',
    ],
  }),
  parameters: {
    flags: {
      ...common,
      limit: number('How many, 1–500 (default 50)'),
      cursor: text('Go on where the page before ended', 'cursor'),
    },
    positional: { kind: 'tuple', parameters: [argument('name', 'The function’s name')] },
  },
  async func({ json, orgId, ...page }, name) {
    const org = await resolveOrg(this, orgId)
    const found = await (
      await this.api()
    ).compute.functions.invocations({ orgId: org, name, ...page })
    if (json) return this.out.json(found)
    if (found.invocations.length === 0)
      return this.out.line(`no invocations of ${name}: run \`ccp functions invoke ${name}\``)
    this.out.table(
      ['STARTED', 'RESULT', 'DURATION', 'FUEL', 'VERSION', 'NODE', 'ERROR'],
      found.invocations.map((one) => [
        ago(one.started_at, this.clock.now()),
        this.out.style(one.ok ? 'green' : 'red', resultText(one)),
        formatDuration(one.duration_ms),
        one.fuel_used === null ? '-' : String(one.fuel_used),
        String(one.version),
        one.node_id ?? '-',
        one.error ?? '',
      ]),
    )
    if (found.next_cursor !== null) this.out.note(`  → more: --cursor ${found.next_cursor}`)
  },
})

function resultText(one: { ok: boolean; exit_code: number | null; reason: string | null }): string {
  if (one.ok) return 'ok'
  return one.exit_code === null ? (one.reason ?? 'failed') : `exit ${one.exit_code}`
}

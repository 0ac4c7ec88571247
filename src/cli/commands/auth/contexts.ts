import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { docs, json, type CommonFlags } from '#cli/flags.ts'
import { ago } from '#cli/output.ts'
import { readSession } from '#cli/session-file.ts'

type Flags = Pick<CommonFlags, 'json'>

export const contexts = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'List the servers that you are signed in at',
    examples: ['ccp auth contexts'],
  }),
  parameters: { flags: { json } },
  async func({ json: asJson }) {
    const file = await readSession(this.settings.home)
    const list = Object.entries(file.contexts).map(([url, context]) => ({
      url,
      current: url === file.current,
      name: context.name,
      org_id: context.orgId,
      saved_at: context.savedAt,
    }))
    if (asJson) return this.out.json({ contexts: list })
    if (list.length === 0) return this.out.line('not signed in anywhere: run `ccp auth login`')
    this.out.table(
      ['SERVER', 'WHO', 'ORG', 'SIGNED IN'],
      list.map((one) => [
        one.current ? this.out.style('green', `${one.url} (current)`) : one.url,
        one.name,
        one.org_id ?? '-',
        ago(one.saved_at, this.clock.now()),
      ]),
    )
  },
})

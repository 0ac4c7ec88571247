import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { docs, json, type CommonFlags } from '#cli/flags.ts'

type Flags = Pick<CommonFlags, 'json'>

export const whoami = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'Show who you are to the engine, and your organizations',
    examples: ['ccp auth whoami', 'ccp auth whoami --json'],
  }),
  parameters: { flags: { json } },
  async func({ json: asJson }) {
    const target = await this.target()
    const who = await (await this.api()).access.whoami({})
    if (asJson) return this.out.json({ url: target.url, ...who })
    const { credential } = target
    this.out.line(this.out.style('bold', who.name))
    this.out.pairs([
      ['Server', target.url],
      ['Kind', who.kind === 'api-key' ? 'API key' : 'person'],
      ['Credential', credential.kind === 'none' ? 'none' : `from ${credential.from}`],
      ['ID', who.id],
      ...(who.platform_operator ? [['Also', 'platform operator'] satisfies [string, string]] : []),
    ])
    if (who.orgs.length === 0) return
    this.out.line('\nOrganizations')
    this.out.table(
      ['SLUG', 'NAME', 'ROLE', 'ID'],
      who.orgs.map((org) => [org.slug, org.name, org.role, org.id]),
    )
  },
})

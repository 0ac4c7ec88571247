import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago } from '#cli/output.ts'

export const listKeys = buildCommand<CommonFlags, [], Cli>({
  docs: docs({
    brief: 'List the API keys of the organization, never their secrets',
    examples: ['ccp auth keys list'],
  }),
  parameters: { flags: common },
  async func({ json, orgId }) {
    const org = await resolveOrg(this, orgId)
    const found = await (await this.api()).access.keys.list({ orgId: org })
    if (json) return this.out.json(found)
    if (found.keys.length === 0)
      return this.out.line('no API keys: run `ccp auth keys create NAME` to make one')
    const now = this.clock.now()
    this.out.table(
      ['NAME', 'ROLE', 'MADE', 'LAST USED', 'EXPIRES', 'ID'],
      found.keys.map((key) => [
        this.out.style('bold', key.name),
        key.role,
        ago(key.created_at, now),
        ago(key.last_used_at, now),
        ago(key.expires_at, now),
        key.id,
      ]),
    )
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { quotaPairs } from '#cli/commands/quotas/present.ts'
import { common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

export const get = buildCommand<CommonFlags, [], Cli>({
  docs: docs({
    brief: 'Show what the organization may take at a time',
    examples: ['ccp quotas get', 'ccp quotas get --org-id acme --json'],
  }),
  parameters: { flags: common },
  async func({ json, orgId }) {
    const org = await resolveOrg(this, orgId)
    const found = await (await this.api()).compute.quotas.get({ orgId: org })
    if (json) return this.out.json(found)
    this.out.pairs(quotaPairs(found.quotas))
  },
})

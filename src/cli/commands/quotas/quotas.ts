import { buildRouteMap } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { get } from '#cli/commands/quotas/get.ts'
import { set } from '#cli/commands/quotas/set.ts'

export const quotas = buildRouteMap<string, Cli>({
  routes: { get, set },
  docs: { brief: 'What an organization may take at a time' },
})

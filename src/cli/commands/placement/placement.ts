import { buildRouteMap } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { explain } from '#cli/commands/placement/explain.ts'

export const placement = buildRouteMap<string, Cli>({
  routes: { explain },
  docs: { brief: 'Why work runs where it does, or nowhere' },
})

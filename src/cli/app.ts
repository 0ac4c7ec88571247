// The tree of commands. `ccp nodes …` and `ccp compute nodes …` are the same.
import { buildApplication, buildRouteMap, type Application } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { auth } from '#cli/commands/auth/auth.ts'
import { complete } from '#cli/commands/completion/complete.ts'
import { completion } from '#cli/commands/completion/completion.ts'
import { dev } from '#cli/commands/dev/dev.ts'
import { events } from '#cli/commands/events/events.ts'
import { functions } from '#cli/commands/functions/functions.ts'
import { nodes } from '#cli/commands/nodes/nodes.ts'
import { placement } from '#cli/commands/placement/placement.ts'
import { quotas } from '#cli/commands/quotas/quotas.ts'
import { texts } from '#cli/usage.ts'

const compute = buildRouteMap<string, Cli>({
  routes: { nodes, functions, placement, quotas, events },
  docs: { brief: 'The same commands under the name of their part' },
})

export const root = buildRouteMap<string, Cli>({
  routes: { dev, nodes, functions, placement, quotas, events, auth, completion, complete, compute },
  docs: {
    brief: 'Run your code on hardware that dials out',
    fullDescription:
      'Run your code on hardware that dials out.\n\n' +
      'Begin with `ccp dev` (a whole platform on this machine) or `ccp auth login`.',
    hideRoute: { compute: true, complete: true },
  },
})

export function buildApp(
  version: string,
  colour: boolean,
  onFailure: (error: unknown) => void,
): Application<Cli> {
  return buildApplication(root, {
    name: 'ccp',
    versionInfo: { currentVersion: version },
    scanner: { caseStyle: 'allow-kebab-for-camel', allowArgumentEscapeSequence: true },
    documentation: { disableAnsiColor: !colour, onlyRequiredInUsageLine: true },
    localization: { text: texts(onFailure) },
  })
}

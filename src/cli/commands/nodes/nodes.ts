import { buildRouteMap } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { enroll } from '#cli/commands/nodes/enroll.ts'
import { get } from '#cli/commands/nodes/get.ts'
import { list } from '#cli/commands/nodes/list.ts'
import { revoke } from '#cli/commands/nodes/revoke.ts'
import { revokeIdentity } from '#cli/commands/nodes/revoke-identity.ts'
import { setDraining } from '#cli/commands/nodes/set-draining.ts'
import { setTier } from '#cli/commands/nodes/set-tier.ts'

export const nodes = buildRouteMap<string, Cli>({
  routes: { enroll, list, get, setTier, setDraining, revoke, revokeIdentity },
  aliases: { ls: 'list' },
  docs: { brief: 'Hardware that dials out and runs your code' },
})

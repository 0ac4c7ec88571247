import { buildRouteMap } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { contexts } from '#cli/commands/auth/contexts.ts'
import { invite } from '#cli/commands/auth/invite.ts'
import { createKey } from '#cli/commands/auth/keys/create.ts'
import { listKeys } from '#cli/commands/auth/keys/list.ts'
import { revokeKey } from '#cli/commands/auth/keys/revoke.ts'
import { login } from '#cli/commands/auth/login.ts'
import { logout } from '#cli/commands/auth/logout.ts'
import { use } from '#cli/commands/auth/use.ts'
import { whoami } from '#cli/commands/auth/whoami.ts'

const keys = buildRouteMap<string, Cli>({
  routes: { create: createKey, list: listKeys, revoke: revokeKey },
  aliases: { ls: 'list' },
  docs: { brief: 'API keys of the organization, for automation' },
})

export const auth = buildRouteMap<string, Cli>({
  routes: { login, logout, whoami, use, contexts, keys, invite },
  docs: { brief: 'Who you are to the engine: sign-in, API keys, invitations' },
})

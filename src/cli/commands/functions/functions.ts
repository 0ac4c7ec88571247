import { buildRouteMap } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { remove } from '#cli/commands/functions/delete.ts'
import { deploy } from '#cli/commands/functions/deploy.ts'
import { get } from '#cli/commands/functions/get.ts'
import { invocations } from '#cli/commands/functions/invocations.ts'
import { invoke } from '#cli/commands/functions/invoke.ts'
import { list } from '#cli/commands/functions/list.ts'
import { rollback } from '#cli/commands/functions/rollback.ts'

export const functions = buildRouteMap<string, Cli>({
  routes: { deploy, list, get, invoke, invocations, rollback, delete: remove },
  aliases: { ls: 'list', rm: 'delete' },
  docs: { brief: 'WASM components, submitted inline and collected' },
})

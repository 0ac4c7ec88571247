import { whoami as contract } from '#api/access.ts'
import { handle } from '#engine/handle.ts'

export const whoami = handle(contract, async ({ caller }) => ({
  kind: caller.kind,
  id: caller.id,
  name: caller.name,
  orgs: caller.orgs.map(({ id, slug, name, role }) => ({ id, slug, name, role })),
  platform_operator: caller.platformOperator,
}))

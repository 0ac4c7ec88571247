// Every procedure of the contract with its handler; what is missing here is an error of the types.
import { implement } from '@orpc/server'
import { contract } from '#api/contract.ts'
import { createKey } from '#engine/procedures/access/create-key.ts'
import { invite } from '#engine/procedures/access/invite.ts'
import { listKeys } from '#engine/procedures/access/list-keys.ts'
import { revokeKey } from '#engine/procedures/access/revoke-key.ts'
import { whoami } from '#engine/procedures/access/whoami.ts'
import { list as listEvents } from '#engine/procedures/events/list.ts'
import { deploy } from '#engine/procedures/functions/deploy.ts'
import { remove } from '#engine/procedures/functions/delete.ts'
import { get as getFunction } from '#engine/procedures/functions/get.ts'
import { invocations } from '#engine/procedures/functions/invocations.ts'
import { invoke } from '#engine/procedures/functions/invoke.ts'
import { list as listFunctions } from '#engine/procedures/functions/list.ts'
import { rollback } from '#engine/procedures/functions/rollback.ts'
import { enroll } from '#engine/procedures/nodes/enroll.ts'
import { get as getNode } from '#engine/procedures/nodes/get.ts'
import { list as listNodes } from '#engine/procedures/nodes/list.ts'
import { revokeIdentity } from '#engine/procedures/nodes/revoke-identity.ts'
import { revoke } from '#engine/procedures/nodes/revoke.ts'
import { setDraining } from '#engine/procedures/nodes/set-draining.ts'
import { setTrustTier } from '#engine/procedures/nodes/set-trust-tier.ts'
import { explain } from '#engine/procedures/placement/explain.ts'
import { get as getQuotas } from '#engine/procedures/quotas/get.ts'
import { set as setQuotas } from '#engine/procedures/quotas/set.ts'
import type { HttpContext } from '#engine/kernel.ts'

export const router = implement(contract)
  .$context<HttpContext>()
  .router({
    access: {
      whoami,
      keys: { create: createKey, list: listKeys, revoke: revokeKey },
      invitations: { create: invite },
    },
    compute: {
      nodes: {
        enroll,
        list: listNodes,
        get: getNode,
        setTrustTier,
        setDraining,
        revoke,
        revokeIdentity,
      },
      functions: {
        deploy,
        list: listFunctions,
        get: getFunction,
        delete: remove,
        rollback,
        invoke,
        invocations,
      },
      placement: { explain },
      quotas: { get: getQuotas, set: setQuotas },
      events: { list: listEvents },
    },
  })

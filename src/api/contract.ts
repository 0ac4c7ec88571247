// The whole contract: the engine serves it, the CLI calls it, the reference is generated from it.
import * as access from '#api/access.ts'
import * as events from '#api/events.ts'
import * as functions from '#api/functions.ts'
import * as nodes from '#api/nodes.ts'
import * as placement from '#api/placement.ts'
import * as quotas from '#api/quotas.ts'

export const contract = {
  access: {
    whoami: access.whoami,
    keys: { create: access.createKey, list: access.listKeys, revoke: access.revokeKey },
    invitations: { create: access.invite },
  },
  compute: {
    nodes: {
      enroll: nodes.enroll,
      list: nodes.list,
      get: nodes.get,
      setTrustTier: nodes.setTrustTier,
      setDraining: nodes.setDraining,
      revoke: nodes.revoke,
      revokeIdentity: nodes.revokeIdentity,
    },
    functions: {
      deploy: functions.deploy,
      list: functions.list,
      get: functions.get,
      delete: functions.remove,
      rollback: functions.rollback,
      invoke: functions.invoke,
      invocations: functions.invocations,
    },
    placement: { explain: placement.explain },
    quotas: { get: quotas.get, set: quotas.set },
    events: { list: events.list },
  },
}

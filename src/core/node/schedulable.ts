// Whether a node may receive work at all (ND-12): the first failing check wins and names the capacity bucket.
// Its SQL twin is `schedulableSql` in store/placement.ts; the twins test holds them equal.
import type { PlacementNode } from '#core/node/node.ts'

export type Bucket = 'excluded' | 'maintenance' | 'provisioning' | 'unreachable' | 'unhealthy'
export type Verdict = { ok: true } | { ok: false; bucket: Bucket; message: string }

type Check = [Bucket, (node: PlacementNode) => boolean, (node: PlacementNode) => string]

const checks: readonly Check[] = [
  ['excluded', (n) => n.role === 'host', (n) => `its role is ${n.role}; only hosts take work`],
  [
    'excluded',
    (n) => n.trust !== 'tenant-controlled',
    () => 'it is tenant-controlled; such nodes add no capacity',
  ],
  [
    'maintenance',
    (n) => !n.maintenance && !n.cordoned,
    (n) => (n.maintenance ? 'it is in maintenance' : 'it is cordoned'),
  ],
  [
    'provisioning',
    (n) => n.provisionState === 'adopted' || n.provisionState === 'deployed',
    (n) => `its provision state is ${n.provisionState}; adopted or deployed is needed`,
  ],
  [
    'provisioning',
    (n) => n.observedGeneration >= 1,
    () => 'it has not yet reported its first generation',
  ],
  [
    'unreachable',
    (n) => n.connectivity === 'connected',
    (n) => `it is ${n.connectivity}: no session with an engine`,
  ],
  [
    'unhealthy',
    (n) => n.noScheduleReasons.length === 0,
    (n) => `it refuses new work: ${n.noScheduleReasons.join(', ')}`,
  ],
]

export function schedulable(node: PlacementNode): Verdict {
  for (const [bucket, passes, why] of checks)
    if (!passes(node)) return { ok: false, bucket, message: why(node) }
  return { ok: true }
}

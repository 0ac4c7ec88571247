// A node and its axes (ND-10). Each axis has one owner, and none implies another.

export const TRUST_TIERS = ['secure', 'community'] as const
export const ROLES = ['host', 'dedicated', 'site', 'unassigned', 'job'] as const
export const TRUSTS = ['platform', 'tenant-owned', 'tenant-controlled'] as const
export const CONNECTIVITIES = ['disconnected', 'connected', 'unreachable', 'lost'] as const
export const RUNTIMES = ['wasm', 'microvm', 'container'] as const
export const PROVISION_STATES = [
  'adopting',
  'adopted',
  'enrolling',
  'inspecting',
  'commissioning',
  'ready',
  'deploying',
  'deployed',
  'releasing',
  'rescue',
  'failed',
  'retiring',
  'retired',
] as const

export type TrustTier = (typeof TRUST_TIERS)[number]
export type Role = (typeof ROLES)[number]
export type Trust = (typeof TRUSTS)[number]
export type Connectivity = (typeof CONNECTIVITIES)[number]
export type Runtime = (typeof RUNTIMES)[number]
export type ProvisionState = (typeof PROVISION_STATES)[number]

/** What placement reads of a node. Rows of the store have this shape and more. */
export type PlacementNode = {
  id: string
  orgId: string
  nodeId: string
  region: string | null
  role: Role
  trust: Trust
  trustTier: TrustTier
  provisionState: ProvisionState
  observedGeneration: number
  maintenance: boolean
  cordoned: boolean
  connectivity: Connectivity
  noScheduleReasons: readonly string[]
  /** Null until the node reported a manifest. */
  cpuMillis: number | null
  memMb: number | null
  runtimes: readonly string[] | null
  usedCpuMillis: number
  usedMemMb: number
}

/** D39: the stricter of the record's tier and the agent's own flag. */
export function effectiveTier(recordTier: TrustTier, communityFlag: boolean): TrustTier {
  return communityFlag ? 'community' : recordTier
}

/** D18: the beat for an engine that holds this many sessions. */
export function heartbeatMs(
  sessions: number,
  beats: { small: number; medium: number; large: number },
  sizes: { small: number; medium: number },
): number {
  if (sessions < sizes.small) return beats.small
  return sessions < sizes.medium ? beats.medium : beats.large
}

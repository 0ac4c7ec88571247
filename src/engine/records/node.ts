// The API's shape of a node.
import type { z } from 'zod'
import type { nodeRecord } from '#api/nodes.ts'
import { schedulable } from '#core/node/schedulable.ts'
import type { Node } from '#store/nodes.ts'

export type NodeRecord = z.input<typeof nodeRecord>

/** The reason that `setDraining` writes and takes away. */
export const DRAINING = 'draining'

export function nodeRecordOf(node: Node): NodeRecord {
  const verdict = schedulable(node)
  const { cpuMillis, memMb, runtimes } = node
  const manifest =
    cpuMillis === null || memMb === null || runtimes === null
      ? null
      : { cpu_millis: cpuMillis, mem_mb: memMb, runtimes: [...runtimes] }
  return {
    id: node.id,
    node_id: node.nodeId,
    owner_org_id: node.orgId,
    site_id: node.siteId,
    pool_id: node.poolId,
    label: node.label,
    contributor: node.contributor,
    region: node.region,
    role: node.role,
    trust: node.trust,
    trust_tier: node.trustTier,
    pending_trust_tier: node.pendingTrustTier,
    manifest,
    used: { cpu_millis: node.usedCpuMillis, mem_mb: node.usedMemMb },
    provision_state: node.provisionState,
    failure: node.failure,
    maintenance: node.maintenance,
    cordoned: node.cordoned,
    connectivity: node.connectivity,
    draining: node.noScheduleReasons.includes(DRAINING),
    no_schedule_reasons: [...node.noScheduleReasons],
    schedulable: verdict.ok,
    unschedulable: verdict.ok ? null : { bucket: verdict.bucket, message: verdict.message },
    generation: node.generation,
    observed_generation: node.observedGeneration,
    identity_generation: node.identityGeneration,
    version: node.version,
    agent_version: node.agentVersion,
    jail_missing: node.jailMissing && [...node.jailMissing],
    session: node.session && {
      epoch: node.session.epoch,
      gateway_id: node.session.engineId,
      transport: node.session.transport,
      connected_at: node.session.connectedAt.toISOString(),
      disconnected_at: node.session.disconnectedAt?.toISOString() ?? null,
    },
    last_seen_at: node.lastSeenAt?.toISOString() ?? null,
    created_at: node.createdAt.toISOString(),
  }
}

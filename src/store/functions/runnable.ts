// What an invocation reads before it begins, in one statement; while nothing of it changes, the engine remembers it.
import { type RawBuilder, sql } from 'kysely'
import type { PlacementNode } from '#core/node/node.ts'
import type { Store, Tx } from '#store/connect.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import { effectiveTierSql } from '#store/placement.ts'
import type { SlotRow } from '#store/functions/slots.ts'

export type Runnable = {
  fn: FunctionRow
  /** By this preparer, if there is one. */
  artifact: { sha256: string; sizeBytes: number } | undefined
  /** The engine's slots of the version, used or not. */
  slots: SlotRow[]
  /** Their nodes. */
  nodes: PlacementNode[]
  /** What the org's quota says of invocations at once; null: nothing. */
  invocationsAtOnce: number | null
}

type Held = { slot: SlotRow; node: PlacementNode }

type Row = FunctionRow & {
  artifactSha256: string | null
  artifactBytes: number | null
  invocationsAtOnce: number | null
  held: Held[]
}

/** The engine's slots of a version with their nodes, as JSON, over `functions f` that it is a version of. */
const heldSql = (versionId: RawBuilder<string>, engineId: string): RawBuilder<Held[]> => sql`(
  select coalesce(json_agg(json_build_object('slot', json_build_object(
    'id', slots.id, 'orgId', slots.org_id, 'functionId', slots.function_id,
    'versionId', slots.version_id, 'version', slots.version,
    'current', coalesce(slots.version = f.current_version, false),
    'units', slots.units, 'cpuMillis', slots.cpu_millis, 'memMb', slots.mem_mb,
    'nodeRecordId', slots.node_id
  ), 'node', json_build_object(
    'id', n.id, 'orgId', n.org_id, 'nodeId', n.node_id, 'region', n.region, 'role', n.role,
    'trust', n.trust, 'trustTier', ${effectiveTierSql}, 'provisionState', n.provision_state,
    'observedGeneration', n.observed_generation, 'maintenance', n.maintenance,
    'cordoned', n.cordoned, 'connectivity', n.connectivity,
    'noScheduleReasons', n.no_schedule_reasons, 'cpuMillis', n.cpu_millis, 'memMb', n.mem_mb,
    'runtimes', n.runtimes, 'usedCpuMillis', n.used_cpu_millis, 'usedMemMb', n.used_mem_mb
  ))), '[]')
  from slots join nodes n on n.id = slots.node_id and n.revoked_at is null
  where slots.version_id = ${versionId} and slots.engine_id = ${engineId}
)`

export async function functionToRun(
  db: Store | Tx,
  of: { orgId: string; name: string; preparer: string; engineId: string },
): Promise<Runnable | undefined> {
  const { rows } = await sql<Row>`
    select f.id, f.org_id, f.name, v.id as version_id, v.version, f.created_at, f.updated_at,
      v.component_sha256, v.size_bytes, v.cpu_millis, v.mem_mb, v.allow_community, v.region,
      v.timeout_ms, v.fuel_max, v.idempotent, v.public,
      a.sha256 as artifact_sha256, a.size_bytes as artifact_bytes,
      (select q.invocations_at_once from org_quotas q where q.org_id = f.org_id)
        as invocations_at_once,
      ${heldSql(sql`v.id`, of.engineId)} as held
    from functions f
    join function_versions v on v.function_id = f.id and v.version = f.current_version
    left join artifacts a on a.component_sha256 = v.component_sha256 and a.mem_mb = v.mem_mb
      and a.preparer = ${of.preparer}
    where f.org_id = ${of.orgId} and f.name = ${of.name}
  `.execute(db)
  const [row] = rows
  if (!row) return undefined
  const { artifactSha256, artifactBytes, invocationsAtOnce, held, ...fn } = row
  const found = artifactSha256 !== null && artifactBytes !== null
  return {
    fn,
    artifact: found ? { sha256: artifactSha256, sizeBytes: artifactBytes } : undefined,
    invocationsAtOnce,
    ...apart(held),
  }
}

/** The engine's slots of a version that some invocation waits for; it need not be the current one. */
export async function slotsOfVersion(
  db: Store | Tx,
  of: { functionId: string; versionId: string; engineId: string },
): Promise<Pick<Runnable, 'slots' | 'nodes'>> {
  const { rows } = await sql<{ held: Held[] }>`
    select ${heldSql(sql`${of.versionId}`, of.engineId)} as held
    from (values (1)) as one left join functions f on f.id = ${of.functionId}
  `.execute(db)
  return apart(rows[0]?.held ?? [])
}

const apart = (held: readonly Held[]): Pick<Runnable, 'slots' | 'nodes'> => ({
  slots: held.map(({ slot }) => slot),
  nodes: held.map(({ node }) => node),
})

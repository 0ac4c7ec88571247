// What an invocation reads before it begins, in one statement: the warm path asks the database once.
import { sql } from 'kysely'
import type { Store, Tx } from '#store/connect.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import { admissibleSql, effectiveTierSql } from '#store/placement.ts'
import type { SlotRow } from '#store/slots.ts'

export type Runnable = {
  fn: FunctionRow
  /** By this preparer, if there is one. */
  artifact: { sha256: string; sizeBytes: number } | undefined
  /** The engine's slots of the version on nodes that may receive its work now, used or not. */
  slots: SlotRow[]
}

const ofVersion = admissibleSql({
  orgId: sql`v.org_id`,
  runtime: 'wasm',
  allowCommunity: sql`v.allow_community`,
  region: sql`v.region`,
})

export async function functionToRun(
  db: Store | Tx,
  of: { orgId: string; name: string; preparer: string; engineId: string },
): Promise<Runnable | undefined> {
  const { rows } = await sql<
    FunctionRow & { artifactSha256: string | null; artifactBytes: number | null; slots: SlotRow[] }
  >`
    select f.id, f.org_id, f.name, v.id as version_id, v.version, f.created_at, f.updated_at,
      v.component_sha256, v.size_bytes, v.cpu_millis, v.mem_mb, v.allow_community, v.region,
      v.timeout_ms, v.fuel_max, v.idempotent, v.public,
      a.sha256 as artifact_sha256, a.size_bytes as artifact_bytes,
      (
        select coalesce(json_agg(json_build_object(
          'id', slots.id, 'functionId', slots.function_id, 'versionId', slots.version_id,
          'current', true, 'cpuMillis', slots.cpu_millis, 'memMb', slots.mem_mb,
          'nodeRecordId', n.id, 'nodeId', n.node_id, 'trustTier', ${effectiveTierSql}
        )), '[]')
        from slots join nodes n on n.id = slots.node_id
        where slots.version_id = v.id and slots.engine_id = ${of.engineId} and ${ofVersion}
      ) as slots
    from functions f
    join function_versions v on v.function_id = f.id and v.version = f.current_version
    left join artifacts a on a.component_sha256 = v.component_sha256 and a.mem_mb = v.mem_mb
      and a.preparer = ${of.preparer}
    where f.org_id = ${of.orgId} and f.name = ${of.name}
  `.execute(db)
  const [row] = rows
  if (!row) return undefined
  const { artifactSha256, artifactBytes, slots, ...fn } = row
  const found = artifactSha256 !== null && artifactBytes !== null
  const artifact = found ? { sha256: artifactSha256, sizeBytes: artifactBytes } : undefined
  return { fn, artifact, slots }
}

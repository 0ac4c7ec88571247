// Where work may go, as SQL, and the booking of it.
// 1. `schedulableSql` and `fitsSql` say exactly what core's `schedulable` and `fits` say (test/twins.pg.test.ts).
// 2. Booking is one statement: it locks the node's row, checks everything again on the locked row, adds to used_* and
//    adds to the slot. So no number of engines overbooks, and a node cordoned in one transaction gets nothing in another.
// 3. A statement waits for one node's row at most, and holds no other meanwhile: bookings cannot deadlock.
// 4. Nothing here reads `contributor` (000-16).
import { type RawBuilder, sql } from 'kysely'
import type { PlacementNode, TrustTier } from '#core/node/node.ts'
import type { Workload } from '#core/placement/place.ts'
import type { Store, Tx } from '#store/connect.ts'

/** The best by fit that placement ranks: enough that many engines find different rows among them. */
const CANDIDATES_MAX = 64
/** Nodes of one explanation: an org with more reads the first of them. */
const EXPLAINED_MAX = 10_000

type Condition = RawBuilder<boolean>
type Term<T> = T | RawBuilder<T>
/** What admission reads of work: values, or columns that hold them. */
export type Admitting = {
  [K in 'orgId' | 'runtime' | 'allowCommunity' | 'region']: Term<Workload[K]>
}

/** Over `nodes n`: may it receive work at all (ND-12)? */
export const schedulableSql: Condition = sql<boolean>`(
  n.role = 'host'
  and n.trust <> 'tenant-controlled'
  and not n.maintenance and not n.cordoned
  and n.provision_state in ('adopted', 'deployed')
  and n.observed_generation >= 1
  and n.connectivity = 'connected'
  and cardinality(n.no_schedule_reasons) = 0
)`

/** Over `nodes n`: may it receive this work, room aside? Revoked nodes never. */
export const admissibleSql = (work: Admitting): Condition => sql<boolean>`(
  n.revoked_at is null
  and n.org_id = ${work.orgId}
  and coalesce(${work.runtime} = any(n.runtimes), false)
  and ((n.trust_tier = 'secure' and not n.community_flag) or ${work.allowCommunity})
  and coalesce(n.region = ${work.region}, ${work.region}::text is null)
  and ${schedulableSql}
)`

/** Over `nodes n`: may it receive this work, and has it room (D47)? */
export const fitsSql = (work: Workload): Condition => sql<boolean>`(
  ${admissibleSql(work)}
  and n.used_cpu_millis + ${work.cpuMillis} <= coalesce(n.cpu_millis, 0)
  and n.used_mem_mb + ${work.memMb} <= coalesce(n.mem_mb, 0)
)`

/** Over `nodes n`: does this engine hold its session (000-39: `last_seen_at` counts for nothing)? */
const heldBySql = (engineId: string): Condition => sql<boolean>`exists (
  select from node_sessions s
  where s.node_id = n.id and s.engine_id = ${engineId} and s.disconnected_at is null
)`

/** D39: the stricter of the record's tier and the agent's own flag. */
export const effectiveTierSql = sql<TrustTier>`
  case when n.community_flag then 'community' else n.trust_tier end`

const placementColumns = sql`
  n.id, n.org_id, n.node_id, n.region, n.role, n.trust, ${effectiveTierSql} as trust_tier,
  n.provision_state, n.observed_generation, n.maintenance, n.cordoned, n.connectivity,
  n.no_schedule_reasons, n.cpu_millis, n.mem_mb, n.runtimes, n.used_cpu_millis, n.used_mem_mb`

/** Nodes that fit now and whose session the engine holds, the tightest fit first; `first` are kept among them. */
export async function candidates(
  db: Store | Tx,
  work: Workload,
  spec: { engineId: string; first: readonly string[] },
): Promise<PlacementNode[]> {
  const { rows } = await sql<PlacementNode>`
    select ${placementColumns} from nodes n
    where ${fitsSql(work)} and ${heldBySql(spec.engineId)}
    order by n.id = any(${[...spec.first]}::text[]) desc,
      (n.cpu_millis - n.used_cpu_millis) / 1000.0 + (n.mem_mb - n.used_mem_mb) / 1024.0, n.id
    limit ${CANDIDATES_MAX}
  `.execute(db)
  return rows
}

/** The org's nodes as placement sees them, for explanations and for whether waiting can help. */
export async function placementNodes(db: Store | Tx, orgId: string): Promise<PlacementNode[]> {
  const { rows } = await sql<PlacementNode>`
    select ${placementColumns} from nodes n
    where n.org_id = ${orgId} and n.revoked_at is null
    order by n.id limit ${EXPLAINED_MAX}
  `.execute(db)
  return rows
}

/** Whether a node that fits has its session at another engine: then that engine must be asked. */
export async function fitsElsewhere(
  db: Store | Tx,
  work: Workload,
  engineId: string,
): Promise<boolean> {
  const { rows } = await sql`
    select from nodes n
    join node_sessions s on s.node_id = n.id and s.disconnected_at is null
    where s.engine_id <> ${engineId} and ${fitsSql(work)}
    limit 1
  `.execute(db)
  return rows.length > 0
}

export type SlotSpec = {
  /** Of the row, if the version has none on the node yet. */
  id: string
  orgId: string
  functionId: string
  functionName: string
  versionId: string
  version: number
  engineId: string
  createdAt: Date
}

export type Booking = {
  slot: SlotSpec
  /** In the order to try. */
  nodeIds: readonly string[]
  /** As many as the node has room for, at least one. */
  unitsMax: number
  /** Wait for the lock of the first node, instead of taking the first that nobody holds. */
  wait: boolean
}

/** The slot after the booking. */
export type Booked = {
  id: string
  nodeRecordId: string
  units: number
  cpuMillis: number
  memMb: number
}

/**
 * Books units of the work on the first of `nodeIds` that is not locked by somebody else and still fits. Undefined: none
 * did, and nothing changed.
 */
export async function book(
  db: Store | Tx,
  work: Workload,
  booking: Booking,
): Promise<Booked | undefined> {
  const { slot, wait } = booking
  const ids = wait ? booking.nodeIds.slice(0, 1) : [...booking.nodeIds]
  // The node's columns are those of the locked row. The slot is added to, whatever it holds by now; what it then says of
  // its atoms is what the node is charged.
  const { rows } = await sql<Booked>`
    with chosen as materialized (
      select n.id, least(${booking.unitsMax}::integer,
        (n.cpu_millis - n.used_cpu_millis) / ${work.cpuMillis}::integer,
        (n.mem_mb - n.used_mem_mb) / ${work.memMb}::integer) as units
      from unnest(${ids}::text[]) with ordinality as wanted (id, place)
      join nodes n on n.id = wanted.id
      where ${fitsSql(work)} and ${heldBySql(slot.engineId)}
      order by wanted.place limit 1
      for update of n ${wait ? sql`` : sql`skip locked`}
    ), made as (
      insert into slots (id, org_id, function_id, function_name, version_id, version, node_id,
        engine_id, units, cpu_millis, mem_mb, created_at)
      select ${slot.id}, ${slot.orgId}, ${slot.functionId}, ${slot.functionName}, ${slot.versionId},
        ${slot.version}::integer, chosen.id, ${slot.engineId}, chosen.units,
        ${work.cpuMillis}::integer, ${work.memMb}::integer, ${slot.createdAt}::timestamptz
      from chosen
      on conflict (version_id, node_id) do update
      set units = slots.units + excluded.units, engine_id = excluded.engine_id
      returning id, node_id, units, cpu_millis, mem_mb
    ), booked as (
      update nodes n
      set used_cpu_millis = n.used_cpu_millis + chosen.units * made.cpu_millis,
        used_mem_mb = n.used_mem_mb + chosen.units * made.mem_mb
      from chosen join made on made.node_id = chosen.id
      where n.id = chosen.id
    )
    select id, node_id as node_record_id, units, cpu_millis, mem_mb from made
  `.execute(db)
  return rows[0]
}

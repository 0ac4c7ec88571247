// Slots: the atoms that functions hold on nodes.
// 1. A node's used_* is the sum of its slots, at every commit.
// 2. Whoever changes slots locks the node's row first, and one node's at a time.
// 3. A slot is counted by the engine that holds the node's session: slots follow the session.
import { sql } from 'kysely'
import type { Workload } from '#core/placement/place.ts'
import type { TrustTier } from '#core/node/node.ts'
import type { Store, Tx } from '#store/connect.ts'
import { admissibleSql, effectiveTierSql } from '#store/placement.ts'

export type SlotRow = {
  id: string
  functionId: string
  versionId: string
  /** Whether its version is the one that the function runs now. */
  current: boolean
  cpuMillis: number
  memMb: number
  nodeRecordId: string
  nodeId: string
  trustTier: TrustTier
}

const slotColumns = sql`
  slots.id, slots.function_id, slots.version_id,
  exists (
    select from functions f where f.id = slots.function_id and f.current_version = slots.version
  ) as current,
  slots.cpu_millis, slots.mem_mb, slots.node_id as node_record_id, n.node_id,
  ${effectiveTierSql} as trust_tier`

/** The engine's slots of a version on nodes that may receive its work now, used or not. */
export async function admissibleSlots(
  db: Store | Tx,
  work: Workload,
  of: { versionId: string; engineId: string },
): Promise<SlotRow[]> {
  const { rows } = await sql<SlotRow>`
    select ${slotColumns} from slots
    join nodes n on n.id = slots.node_id
    where slots.version_id = ${of.versionId} and slots.engine_id = ${of.engineId}
      and ${admissibleSql(work)}
  `.execute(db)
  return rows
}

/** Takes over the slots of nodes whose session the engine holds; then every slot that the engine counts. */
export async function adoptSlots(db: Store | Tx, engineId: string): Promise<SlotRow[]> {
  // One that is just being given back is left alone: waiting for it could deadlock with who holds its node.
  await sql`
    with others as (
      select slots.id from slots
      join node_sessions s on s.node_id = slots.node_id and s.engine_id = ${engineId}
        and s.disconnected_at is null
      where slots.engine_id <> ${engineId}
      for update of slots skip locked
    )
    update slots set engine_id = ${engineId} from others where slots.id = others.id
  `.execute(db)
  const { rows } = await sql<SlotRow>`
    select ${slotColumns} from slots
    join nodes n on n.id = slots.node_id
    where slots.engine_id = ${engineId}
  `.execute(db)
  return rows
}

/** Gives back those of one node's slots that the engine still counts; returns how many. */
export async function releaseSlots(
  db: Store | Tx,
  of: { nodeRecordId: string; engineId: string; ids: readonly string[] },
): Promise<number> {
  return release(
    db,
    of.nodeRecordId,
    sql`slots.id = any(${[...of.ids]}::text[]) and slots.engine_id = ${of.engineId}`,
  )
}

/** Gives back every slot of a node: it was revoked. What runs there has lost its session. */
export async function releaseSlotsOfNode(tx: Tx, nodeRecordId: string): Promise<number> {
  // A statement of its own: bookings that committed while it waited for the lock are seen by the next.
  await sql`select from nodes where id = ${nodeRecordId} for update`.execute(tx)
  return release(tx, nodeRecordId, sql`true`)
}

async function release(
  db: Store | Tx,
  nodeRecordId: string,
  which: ReturnType<typeof sql>,
): Promise<number> {
  const { rows } = await sql<{ released: number }>`
    with locked as (
      select id from nodes where id = ${nodeRecordId} for update
    ), gone as (
      delete from slots using locked
      where slots.node_id = locked.id and ${which}
      returning slots.cpu_millis, slots.mem_mb
    ), sums as (
      select count(*)::integer as released, coalesce(sum(cpu_millis), 0) as cpu_millis,
        coalesce(sum(mem_mb), 0) as mem_mb
      from gone
    ), freed as (
      update nodes
      set used_cpu_millis = nodes.used_cpu_millis - sums.cpu_millis,
        used_mem_mb = nodes.used_mem_mb - sums.mem_mb
      from sums, locked
      where nodes.id = locked.id and sums.released > 0
    )
    select released from sums
  `.execute(db)
  return rows[0]?.released ?? 0
}

export type Drift = { nodeRecordId: string; usedCpuMillis: number; usedMemMb: number }

/** Nodes whose used_* is not the sum of their slots: none, or a mistake of ours. */
export async function slotDrift(db: Store | Tx): Promise<Drift[]> {
  const { rows } = await sql<Drift>`
    select n.id as node_record_id, n.used_cpu_millis, n.used_mem_mb
    from nodes n left join slots on slots.node_id = n.id
    group by n.id
    having n.used_cpu_millis <> coalesce(sum(slots.cpu_millis), 0)
      or n.used_mem_mb <> coalesce(sum(slots.mem_mb), 0)
  `.execute(db)
  return rows
}

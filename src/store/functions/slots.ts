// Slots: the atoms that functions hold on nodes. One row a (version, node): so many units, each with the row's atoms.
// 1. A node's used_* is the sum of its slots' units by their atoms, at every commit.
// 2. Whoever changes slots locks the node's row first, and one node's at a time.
// 3. A slot is counted by the engine that holds the node's session: slots follow the session.
import { sql } from 'kysely'
import type { Store, Tx } from '#store/connect.ts'

export type SlotRow = {
  id: string
  orgId: string
  functionId: string
  versionId: string
  version: number
  /** Whether its version is the one that the function runs now. */
  current: boolean
  units: number
  /** Of one unit. */
  cpuMillis: number
  memMb: number
  nodeRecordId: string
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
    select slots.id, slots.org_id, slots.function_id, slots.version_id, slots.version,
      exists (
        select from functions f
        where f.id = slots.function_id and f.current_version = slots.version
      ) as current,
      slots.units, slots.cpu_millis, slots.mem_mb, slots.node_id as node_record_id
    from slots where slots.engine_id = ${engineId}
  `.execute(db)
  return rows
}

/** What a version holds, node by node. */
export async function heldByVersion(
  db: Store | Tx,
  versionId: string,
): Promise<{ nodeRecordId: string; cpuMillis: number; memMb: number }[]> {
  return db
    .selectFrom('slots')
    .select((eb) => [
      'nodeId as nodeRecordId',
      eb('cpuMillis', '*', eb.ref('units')).as('cpuMillis'),
      eb('memMb', '*', eb.ref('units')).as('memMb'),
    ])
    .where('versionId', '=', versionId)
    .execute()
}

export type Units = { id: string; units: number }

/** Gives units of one node's slots back, of those that the engine still counts; answers what each had taken off. */
export async function releaseUnits(
  db: Store | Tx,
  of: { nodeRecordId: string; engineId: string; slots: readonly Units[] },
): Promise<Units[]> {
  const ids = of.slots.map(({ id }) => id)
  const units = of.slots.map((slot) => slot.units)
  return release(
    db,
    of.nodeRecordId,
    sql`
      select slots.id, least(slots.units, asked.units) as units
      from slots join unnest(${ids}::text[], ${units}::integer[]) as asked (id, units)
        on asked.id = slots.id
      where slots.engine_id = ${of.engineId} and slots.node_id = ${of.nodeRecordId}
      for update of slots`,
  )
}

/** Gives back every slot of a node: it was revoked. What runs there has lost its session. */
export async function releaseSlotsOfNode(tx: Tx, nodeRecordId: string): Promise<number> {
  // A statement of its own: bookings that committed while it waited for the lock are seen by the next.
  await sql`select from nodes where id = ${nodeRecordId} for update`.execute(tx)
  const gone = await release(
    tx,
    nodeRecordId,
    sql`select slots.id, slots.units from slots where slots.node_id = ${nodeRecordId} for update`,
  )
  return gone.length
}

/** `which` locks slots and says how many units of each go; it is read once the node is locked. */
async function release(
  db: Store | Tx,
  nodeRecordId: string,
  which: ReturnType<typeof sql>,
): Promise<Units[]> {
  const { rows } = await sql<Units>`
    with locked as materialized (
      select id from nodes where id = ${nodeRecordId} for update
    ), going as materialized (
      select g.id, g.units from locked cross join lateral (${which}) g
    ), gone as (
      delete from slots using going
      where slots.id = going.id and slots.units = going.units
      returning slots.id, going.units, slots.cpu_millis, slots.mem_mb
    ), fewer as (
      update slots set units = slots.units - going.units from going
      where slots.id = going.id and slots.units > going.units
      returning slots.id, going.units, slots.cpu_millis, slots.mem_mb
    ), taken as (
      select * from gone union all select * from fewer
    ), freed as (
      update nodes
      set used_cpu_millis = nodes.used_cpu_millis - sums.cpu_millis,
        used_mem_mb = nodes.used_mem_mb - sums.mem_mb
      from locked, (
        select sum(units * cpu_millis) as cpu_millis, sum(units * mem_mb) as mem_mb from taken
        having count(*) > 0
      ) sums
      where nodes.id = locked.id
    )
    select id, units from taken
  `.execute(db)
  return rows
}

export type Drift = { nodeRecordId: string; usedCpuMillis: number; usedMemMb: number }

/** Nodes whose used_* is not the sum of their slots: none, or a mistake of ours. */
export async function slotDrift(db: Store | Tx): Promise<Drift[]> {
  const { rows } = await sql<Drift>`
    select n.id as node_record_id, n.used_cpu_millis, n.used_mem_mb
    from nodes n left join slots on slots.node_id = n.id
    group by n.id
    having n.used_cpu_millis <> coalesce(sum(slots.units * slots.cpu_millis), 0)
      or n.used_mem_mb <> coalesce(sum(slots.units * slots.mem_mb), 0)
  `.execute(db)
  return rows
}

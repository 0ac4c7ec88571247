// Which engine holds which node, and the axes that follow from it (ND-10): connectivity, the manifest, the pending tier.
// 1. A session is named by its epoch, which only grows: whoever writes about an older one writes nothing.
// 2. Locks are taken in the order node row, session row, and many nodes in the order of their ids.
// 3. Only changes of connectivity are row writes of a session; beats stay in memory (`last_seen_at` is flushed in
//    batches and decides nothing).
import { sql } from 'kysely'
import type { TrustTier } from '#core/node/node.ts'
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'
import { transaction } from '#store/connect.ts'
import { tellBuried } from '#store/notify.ts'

export type SessionKey = { nodeRecordId: string; epoch: number }

/** What REGISTER reads of the node, its row already locked by the credential's look-up. */
export type NodeAtRegister = {
  provisionState: string
  generation: number
  observedGeneration: number
  trustTier: TrustTier
  pendingTrustTier: TrustTier | null
  /** The epoch of the last session; 0 when there was none. */
  epoch: number
  /** When a session is open by the rows: the engine that holds it. */
  heldBy: string | undefined
}

export async function nodeAtRegister(tx: Tx, nodeRecordId: string): Promise<NodeAtRegister> {
  const row = await tx
    .selectFrom('nodes')
    .leftJoin('nodeSessions', 'nodeSessions.nodeId', 'nodes.id')
    .select([
      'nodes.provisionState',
      'nodes.generation',
      'nodes.observedGeneration',
      'nodes.trustTier',
      'nodes.pendingTrustTier',
      'nodeSessions.epoch',
      'nodeSessions.engineId',
      'nodeSessions.disconnectedAt',
    ])
    .where('nodes.id', '=', nodeRecordId)
    .executeTakeFirstOrThrow()
  return {
    provisionState: row.provisionState,
    generation: row.generation,
    observedGeneration: row.observedGeneration,
    trustTier: tier(row.trustTier),
    pendingTrustTier: row.pendingTrustTier === null ? null : tier(row.pendingTrustTier),
    epoch: row.epoch ?? 0,
    heldBy: row.engineId !== null && row.disconnectedAt === null ? row.engineId : undefined,
  }
}

const tier = (text: string): TrustTier => (text === 'community' ? 'community' : 'secure')

/** The generation that the node was asked for and has not reported yet, if any. */
export async function generationWanted(
  db: Store,
  nodeRecordId: string,
): Promise<number | undefined> {
  const row = await db
    .selectFrom('nodes')
    .select('generation')
    .where('id', '=', nodeRecordId)
    .whereRef('observedGeneration', '<', 'generation')
    .executeTakeFirst()
  return row?.generation
}

export type SessionStart = SessionKey & {
  engineId: string
  transport: 'quic' | 'tls'
  remoteAddress: string
  now: Instant
  generation: number
  trustTier: TrustTier
  manifest: {
    cpuMillis: number
    memMb: number
    runtimes: readonly string[]
    jailMissing?: readonly string[] | undefined
  }
  community: boolean
  jailer: boolean
  agentVersion: string
}

/** Opens the session that REGISTER admitted: one write of the node, one of its session. */
export async function beginSession(tx: Tx, start: SessionStart): Promise<void> {
  const now = new Date(start.now)
  await tx
    .updateTable('nodes')
    .set({
      connectivity: 'connected',
      noScheduleReasons: withoutUnreachable,
      generation: start.generation,
      trustTier: start.trustTier,
      pendingTrustTier: null,
      cpuMillis: start.manifest.cpuMillis,
      memMb: start.manifest.memMb,
      runtimes: [...start.manifest.runtimes],
      jailMissing: start.manifest.jailMissing ? [...start.manifest.jailMissing] : null,
      communityFlag: start.community,
      jailerFlag: start.jailer,
      agentVersion: start.agentVersion,
      lastSeenAt: now,
      updatedAt: now,
    })
    .where('id', '=', start.nodeRecordId)
    .execute()
  const session = {
    engineId: start.engineId,
    epoch: start.epoch,
    transport: start.transport,
    remoteAddress: start.remoteAddress,
    connectedAt: now,
    disconnectedAt: null,
  }
  await tx
    .insertInto('nodeSessions')
    .values({ nodeId: start.nodeRecordId, ...session })
    .onConflict((conflict) => conflict.column('nodeId').doUpdateSet(session))
    .execute()
}

const withoutUnreachable = sql<string[]>`array_remove(no_schedule_reasons, 'unreachable')`
const withUnreachable = sql<
  string[]
>`array_append(array_remove(no_schedule_reasons, 'unreachable'), 'unreachable')`

/**
 * The sessions are over: their nodes become `disconnected`, or `unreachable` when silence ended them. Answers those
 * that were the nodes' live sessions; the rest had been replaced.
 */
export async function endSessions(
  db: Store,
  ends: readonly SessionKey[],
  to: { connectivity: 'disconnected' | 'unreachable'; now: Instant },
): Promise<{ nodeRecordId: string; orgId: string }[]> {
  if (ends.length === 0) return []
  return transaction(db, async (tx) => {
    await lockNodes(
      tx,
      ends.map((end) => end.nodeRecordId),
    )
    const { rows } = await sql<{ nodeId: string }>`
      update node_sessions s set disconnected_at = ${new Date(to.now)}
      from ${keys(ends)} as k(node_id, epoch)
      where s.node_id = k.node_id and s.epoch = k.epoch and s.disconnected_at is null
      returning s.node_id
    `.execute(tx)
    return disconnect(
      tx,
      rows.map((row) => row.nodeId),
      to,
    )
  })
}

/** Ends what the rows say that an engine holds: a former self's, or a dead engine's. */
export async function endSessionsOfEngine(
  db: Store,
  engineId: string,
  now: Instant,
): Promise<{ nodeRecordId: string; orgId: string }[]> {
  return transaction(db, async (tx) => {
    const held = await tx
      .selectFrom('nodeSessions')
      .select('nodeId')
      .where('engineId', '=', engineId)
      .where('disconnectedAt', 'is', null)
      .execute()
    await lockNodes(
      tx,
      held.map((row) => row.nodeId),
    )
    if (held.length > 0) await tellBuried(tx, engineId)
    const ended = await tx
      .updateTable('nodeSessions')
      .set({ disconnectedAt: new Date(now) })
      .where('engineId', '=', engineId)
      .where('disconnectedAt', 'is', null)
      .where('nodeId', 'in', [...held.map((row) => row.nodeId), ''])
      .returning('nodeId')
      .execute()
    return disconnect(
      tx,
      ended.map((row) => row.nodeId),
      { connectivity: 'disconnected', now },
    )
  })
}

async function lockNodes(tx: Tx, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  await sql`
    select from nodes where id = any(${[...ids]}::text[]) order by id for update
  `.execute(tx)
}

async function disconnect(
  tx: Tx,
  ids: readonly string[],
  to: { connectivity: 'disconnected' | 'unreachable'; now: Instant },
): Promise<{ nodeRecordId: string; orgId: string }[]> {
  if (ids.length === 0) return []
  return tx
    .updateTable('nodes')
    .set({
      connectivity: to.connectivity,
      updatedAt: new Date(to.now),
      ...(to.connectivity === 'unreachable' ? { noScheduleReasons: withUnreachable } : {}),
    })
    .where('id', 'in', ids)
    .returning(['id as nodeRecordId', 'orgId'])
    .execute()
}

/** Nodes whose last session is over and that have not been called unreachable yet. */
export async function nodesWithoutSession(db: Store): Promise<SessionKey[]> {
  return db
    .selectFrom('nodes')
    .innerJoin('nodeSessions', 'nodeSessions.nodeId', 'nodes.id')
    .select(['nodes.id as nodeRecordId', 'nodeSessions.epoch'])
    .where('nodes.connectivity', '=', 'disconnected')
    .where('nodes.revokedAt', 'is', null)
    .where('nodeSessions.disconnectedAt', 'is not', null)
    .execute()
}

/** `disconnected` for too long: unless the node came back meanwhile, which a newer epoch shows. */
export async function markUnreachable(
  db: Store,
  silent: readonly SessionKey[],
  now: Instant,
): Promise<{ nodeRecordId: string; orgId: string }[]> {
  if (silent.length === 0) return []
  return transaction(db, async (tx) => {
    await lockNodes(
      tx,
      silent.map((key) => key.nodeRecordId),
    )
    const { rows } = await sql<{ nodeRecordId: string; orgId: string }>`
      update nodes n set connectivity = 'unreachable', no_schedule_reasons = ${withUnreachable},
        updated_at = ${new Date(now)}
      from node_sessions s, ${keys(silent)} as k(node_id, epoch)
      where n.id = k.node_id and s.node_id = k.node_id and s.epoch = k.epoch
        and s.disconnected_at is not null and n.connectivity = 'disconnected'
      returning n.id as node_record_id, n.org_id
    `.execute(tx)
    return rows
  })
}

export type Seen = SessionKey & { identityGeneration: number; at: Instant }

/**
 * Writes `last_seen_at` of many sessions and answers those that are no longer the node's own: replaced on another
 * engine, revoked, or of an identity that was replaced.
 */
export async function flushSeen(
  db: Store,
  engineId: string,
  seen: readonly Seen[],
): Promise<SessionKey[]> {
  if (seen.length === 0) return []
  const ids = seen.map((each) => each.nodeRecordId)
  const epochs = seen.map((each) => each.epoch)
  const generations = seen.map((each) => each.identityGeneration)
  const { rows: stale } = await sql<SessionKey>`
    select k.node_id as node_record_id, k.epoch
    from unnest(${ids}::text[], ${epochs}::bigint[], ${generations}::bigint[]) as k(node_id, epoch, generation)
    left join node_sessions s on s.node_id = k.node_id and s.engine_id = ${engineId} and s.epoch = k.epoch
      and s.disconnected_at is null
    left join nodes n on n.id = k.node_id and n.revoked_at is null and n.identity_generation = k.generation
    where s.node_id is null or n.id is null
  `.execute(db)
  const times = seen.map((each) => new Date(each.at))
  // Rows that another transaction holds are left for the next flush: the time is advisory.
  await sql`
    with free as (select id from nodes where id = any(${ids}::text[]) order by id for update skip locked)
    update nodes n set last_seen_at = k.at
    from free, unnest(${ids}::text[], ${times}::timestamptz[]) as k(node_id, at)
    where n.id = free.id and n.id = k.node_id and (n.last_seen_at is null or n.last_seen_at < k.at)
  `.execute(db)
  return stale
}

const keys = (of: readonly SessionKey[]) =>
  sql`unnest(${of.map((key) => key.nodeRecordId)}::text[], ${of.map((key) => key.epoch)}::bigint[])`

/** The node reports what it converged to. False when the session is not its own any more, or knows better than we do. */
export async function recordObserved(
  db: Store,
  observed: SessionKey & { generation: number; now: Instant },
): Promise<boolean> {
  const { rows } = await sql`
    update nodes n set observed_generation = ${observed.generation}, updated_at = ${new Date(observed.now)}
    from node_sessions s
    where n.id = ${observed.nodeRecordId} and s.node_id = n.id and s.epoch = ${observed.epoch}
      and s.disconnected_at is null and n.generation >= ${observed.generation}
      and n.observed_generation <> ${observed.generation}
    returning n.id
  `.execute(db)
  return rows.length > 0
}

/** Acceptance passed: `adopting` becomes `adopted` and generation 1 is wanted. Answers the generation, or undefined. */
export async function acceptNode(
  tx: Tx,
  node: { nodeRecordId: string; now: Instant },
): Promise<{ generation: number; orgId: string } | undefined> {
  return tx
    .updateTable('nodes')
    .set({
      provisionState: 'adopted',
      failure: null,
      generation: sql<number>`greatest(generation, 1)`,
      updatedAt: new Date(node.now),
    })
    .where('id', '=', node.nodeRecordId)
    .where('provisionState', '=', 'adopting')
    .returning(['generation', 'orgId'])
    .executeTakeFirst()
}

/** Acceptance failed: `failed` with the check's output, and in maintenance until an operator looks (003-15). */
export async function failNode(
  tx: Tx,
  node: { nodeRecordId: string; failure: string; now: Instant },
): Promise<{ orgId: string } | undefined> {
  return tx
    .updateTable('nodes')
    .set({
      provisionState: 'failed',
      failure: node.failure,
      maintenance: true,
      updatedAt: new Date(node.now),
    })
    .where('id', '=', node.nodeRecordId)
    .where('provisionState', '=', 'adopting')
    .returning('orgId')
    .executeTakeFirst()
}

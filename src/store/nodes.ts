// Table nodes, as operators see it. The session's side of a node stands in sessions.ts, placement's in placement.ts.
// 1. Every query is of one org, and of nodes that are not revoked: a revoked row stays for the audit only (D34).
// 2. `version` grows with what an operator changes and with nothing else (D41).
import { sql } from 'kysely'
import type {
  Connectivity,
  PlacementNode,
  ProvisionState,
  Role,
  Trust,
  TrustTier,
} from '#core/node/node.ts'
import { effectiveTier } from '#core/node/node.ts'
import type { Instant } from '#lib/clock.ts'
import type { Tx } from '#store/connect.ts'

export type NodeSession = {
  epoch: number
  engineId: string
  transport: 'quic' | 'tls'
  connectedAt: Date
  disconnectedAt: Date | null
}

export type Node = PlacementNode & {
  siteId: string
  poolId: string
  label: string | null
  contributor: string | null
  /** The record's own tier; `trustTier` is the stricter of it and the agent's flag (D39). */
  recordTier: TrustTier
  pendingTrustTier: TrustTier | null
  failure: string | null
  generation: number
  identityGeneration: number
  version: number
  agentVersion: string | null
  /** Layers of the jail that its machine lacks; null: no agent has said. */
  jailMissing: string[] | null
  lastSeenAt: Date | null
  createdAt: Date
  session: NodeSession | null
}

export type NewNode = {
  id: string
  orgId: string
  nodeId: string
  label: string | null
  region: string | null
  contributor: string | null
  siteId: string
  poolId: string
  trust: Trust
  trustTier: TrustTier
  now: Instant
}

/** False when a node of that name is enrolled in the org already. */
export async function insertNode(tx: Tx, node: NewNode): Promise<boolean> {
  const { now, ...row } = node
  const result = await tx
    .insertInto('nodes')
    .values({
      ...row,
      role: 'host',
      pendingTrustTier: null,
      provisionState: 'adopting',
      failure: null,
      maintenance: false,
      cordoned: false,
      power: 'unknown',
      connectivity: 'disconnected',
      noScheduleReasons: [],
      generation: 0,
      observedGeneration: 0,
      identityGeneration: 1,
      version: 0,
      communityFlag: false,
      jailerFlag: false,
      agentVersion: null,
      usedCpuMillis: 0,
      usedMemMb: 0,
      lastSeenAt: null,
      createdAt: new Date(now),
      updatedAt: new Date(now),
      revokedAt: null,
    })
    .onConflict((conflict) =>
      conflict.columns(['orgId', 'nodeId']).where('revokedAt', 'is', null).doNothing(),
    )
    .executeTakeFirst()
  return result.numInsertedOrUpdatedRows === 1n
}

/** The org's node of this record id or, else, of this node id. */
export async function findNode(tx: Tx, orgId: string, id: string): Promise<Node | undefined> {
  const row = await rows(tx, orgId)
    .where((eb) => eb.or([eb('nodes.id', '=', id), eb('nodes.nodeId', '=', id)]))
    .orderBy(sql`nodes.id = ${id}`, 'desc')
    .limit(1)
    .executeTakeFirst()
  return row && toNode(row)
}

/** The same, the node's row locked until the transaction ends. */
export async function lockNode(tx: Tx, orgId: string, id: string): Promise<Node | undefined> {
  const found = await findNode(tx, orgId, id)
  if (!found) return undefined
  const row = await rows(tx, orgId)
    .where('nodes.id', '=', found.id)
    .forUpdate('nodes')
    .executeTakeFirst()
  return row && toNode(row)
}

/** In the order of their enrollment, after the record `cursor`. */
export async function listNodes(
  tx: Tx,
  of: { orgId: string; limit: number; cursor: string | undefined },
): Promise<Node[]> {
  const all = rows(tx, of.orgId).orderBy('nodes.id').limit(of.limit)
  const page = of.cursor === undefined ? all : all.where('nodes.id', '>', of.cursor)
  return (await page.execute()).map(toNode)
}

/** What an operator may change; `version` grows by one. */
export type NodeChange = {
  pendingTrustTier?: TrustTier | null
  noScheduleReasons?: string[]
  identityGeneration?: number
  revokedAt?: Date
}

export async function changeNode(
  tx: Tx,
  node: { id: string; orgId: string },
  change: NodeChange & { now: Instant },
): Promise<void> {
  const { now, ...set } = change
  await tx
    .updateTable('nodes')
    .set((eb) => ({ ...set, version: eb('version', '+', 1), updatedAt: new Date(now) }))
    .where('orgId', '=', node.orgId)
    .where('id', '=', node.id)
    .execute()
}

const rows = (tx: Tx, orgId: string) =>
  tx
    .selectFrom('nodes')
    .leftJoin('nodeSessions', 'nodeSessions.nodeId', 'nodes.id')
    .selectAll('nodes')
    .select([
      'nodeSessions.epoch as sessionEpoch',
      'nodeSessions.engineId as sessionEngineId',
      'nodeSessions.transport as sessionTransport',
      'nodeSessions.connectedAt as sessionConnectedAt',
      'nodeSessions.disconnectedAt as sessionDisconnectedAt',
    ])
    .where('nodes.orgId', '=', orgId)
    .where('nodes.revokedAt', 'is', null)

type Row = Awaited<ReturnType<ReturnType<typeof rows>['executeTakeFirstOrThrow']>>

function toNode(row: Row): Node {
  const recordTier = row.trustTier as TrustTier
  return {
    ...row,
    role: row.role as Role,
    trust: row.trust as Trust,
    recordTier,
    trustTier: effectiveTier(recordTier, row.communityFlag),
    pendingTrustTier: row.pendingTrustTier as TrustTier | null,
    provisionState: row.provisionState as ProvisionState,
    connectivity: row.connectivity as Connectivity,
    session: sessionOf(row),
  }
}

function sessionOf(row: Row): NodeSession | null {
  const { sessionEpoch, sessionEngineId, sessionConnectedAt } = row
  if (sessionEpoch === null || sessionEngineId === null || sessionConnectedAt === null) return null
  return {
    epoch: sessionEpoch,
    engineId: sessionEngineId,
    transport: row.sessionTransport === 'quic' ? 'quic' : 'tls',
    connectedAt: sessionConnectedAt,
    disconnectedAt: row.sessionDisconnectedAt,
  }
}

export type NodeWork = { function: string; version: number; cpuMillis: number; memMb: number }

/** What is booked on the node, one line a slot with all its units. */
export async function workOfNode(
  tx: Tx,
  node: { id: string; orgId: string },
  limit: number,
): Promise<NodeWork[]> {
  return tx
    .selectFrom('slots')
    .select([
      'functionName as function',
      'version',
      sql<number>`units * cpu_millis`.as('cpuMillis'),
      sql<number>`units * mem_mb`.as('memMb'),
    ])
    .where('orgId', '=', node.orgId)
    .where('nodeId', '=', node.id)
    .orderBy('id')
    .limit(limit)
    .execute()
}

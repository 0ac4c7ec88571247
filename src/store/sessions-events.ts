// Events that sessions cause: a node that registers, leaves or is refused is worth a line of the audit trail (OP-6).
import type { Instant } from '#lib/clock.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import type { Store, Tx } from '#store/connect.ts'

export type NodeEvent = {
  kind:
    | 'node.registered'
    | 'node.disconnected'
    | 'node.unreachable'
    | 'node.key-mismatch'
    | 'node.adopted'
    | 'node.acceptance-failed'
  orgId: string
  nodeRecordId: string
  /** Who caused it: the node by a message of its own, else the engine. */
  actor: { kind: 'node' | 'engine'; id: string }
  ip?: string
  /** Never a secret. */
  data: Record<string, unknown>
}

export async function recordNodeEvents(
  db: Store | Tx,
  events: readonly NodeEvent[],
  at: { now: Instant; random: Random },
): Promise<void> {
  if (events.length === 0) return
  const rows = events.map((event) => ({
    id: newId('evt', at.now, at.random),
    orgId: event.orgId,
    at: new Date(at.now),
    kind: event.kind,
    actorKind: event.actor.kind,
    actor: event.actor.id,
    ip: event.ip ?? null,
    requestId: null,
    subject: event.nodeRecordId,
    data: JSON.stringify(event.data),
  }))
  // A statement holds 65,535 parameters; a whole fleet can leave at once.
  for (let at = 0; at < rows.length; at += ROWS_MAX)
    await db
      .insertInto('events')
      .values(rows.slice(at, at + ROWS_MAX))
      .execute()
}

const ROWS_MAX = 1_000

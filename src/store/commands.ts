// Commands that an engine gives a node. A command runs at most once: the node keeps its id, whatever reconnects.
// queued → sent → succeeded | failed | expired | cancelled; the last four are final and never left.
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

const OPEN_COMMAND_STATES = ['queued', 'sent', 'running'] as const
export type CommandEnd = 'succeeded' | 'failed' | 'expired' | 'cancelled'

export type CommandRow = {
  id: string
  kind: string
  state: string
  output: string | null
  deadlineMs: number
  createdAt: Date
}

export async function addCommand(
  tx: Tx,
  row: {
    id: string
    orgId: string
    nodeRecordId: string
    kind: string
    deadlineMs: number
    now: Instant
  },
): Promise<void> {
  await tx
    .insertInto('commands')
    .values({
      id: row.id,
      orgId: row.orgId,
      nodeId: row.nodeRecordId,
      kind: row.kind,
      state: 'queued',
      output: null,
      deadlineMs: row.deadlineMs,
      createdAt: new Date(row.now),
      endedAt: null,
    })
    .execute()
}

/** What the node has not answered yet, the oldest first. */
export async function openCommands(db: Store | Tx, nodeRecordId: string): Promise<CommandRow[]> {
  return db
    .selectFrom('commands')
    .select(['id', 'kind', 'state', 'output', 'deadlineMs', 'createdAt'])
    .where('nodeId', '=', nodeRecordId)
    .where('state', 'in', OPEN_COMMAND_STATES)
    .orderBy('id')
    .execute()
}

/** The newest commands of a node of the org. */
export async function listCommands(
  db: Store | Tx,
  of: { orgId: string; nodeRecordId: string; limit: number },
): Promise<CommandRow[]> {
  return db
    .selectFrom('commands')
    .select(['id', 'kind', 'state', 'output', 'deadlineMs', 'createdAt'])
    .where('orgId', '=', of.orgId)
    .where('nodeId', '=', of.nodeRecordId)
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
    .limit(of.limit)
    .execute()
}

export async function markCommandSent(db: Store | Tx, id: string): Promise<void> {
  await db
    .updateTable('commands')
    .set({ state: 'sent' })
    .where('id', '=', id)
    .where('state', '=', 'queued')
    .execute()
}

/** Ends an open command of this node. Answers its kind; undefined when it had ended already or is another node's. */
export async function endCommand(
  tx: Tx,
  end: { id: string; nodeRecordId: string; state: CommandEnd; output: string; now: Instant },
): Promise<{ kind: string } | undefined> {
  return tx
    .updateTable('commands')
    .set({ state: end.state, output: end.output, endedAt: new Date(end.now) })
    .where('id', '=', end.id)
    .where('nodeId', '=', end.nodeRecordId)
    .where('state', 'in', OPEN_COMMAND_STATES)
    .returning('kind')
    .executeTakeFirst()
}

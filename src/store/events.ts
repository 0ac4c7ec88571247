// Table events: the audit trail. `data` never holds a secret.
import { sql } from 'kysely'
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

export type EventRow = {
  id: string
  orgId: string | null
  at: Date
  kind: string
  actorKind: 'user' | 'api-key' | 'node' | 'engine'
  actor: string
  ip: string | null
  requestId: string | null
  subject: string | null
  data: Record<string, unknown>
}

export async function insertEvent(db: Store | Tx, event: EventRow): Promise<void> {
  await db
    .insertInto('events')
    .values({ ...event, data: JSON.stringify(event.data) })
    .execute()
}

/** The events that give a record its name. */
const NAMING_KINDS = ['node.enrolled', 'function.deployed', 'key.created']

/** The newest first, older than the event `cursor`; `subject` is the id or the name of what they are about. */
export async function listEvents(
  tx: Tx,
  of: {
    orgId: string
    limit: number
    cursor: string | undefined
    subject: string | undefined
  },
): Promise<EventRow[]> {
  let query = tx
    .selectFrom('events')
    .selectAll()
    .where('orgId', '=', of.orgId)
    .orderBy('id', 'desc')
    .limit(of.limit)
  if (of.cursor !== undefined) query = query.where('id', '<', of.cursor)
  const { subject, orgId } = of
  if (subject !== undefined)
    query = query.where((eb) =>
      eb.or([
        eb('subject', '=', subject),
        // By name: whatever was made under it says so in its first event.
        eb(
          'subject',
          'in',
          eb
            .selectFrom('events')
            .select('subject')
            .where('orgId', '=', orgId)
            .where('kind', 'in', NAMING_KINDS)
            .where(sql`coalesce(data->>'nodeId', data->>'name')`, '=', subject),
        ),
      ]),
    )
  const rows = await query.execute()
  return rows.map((row) => ({
    ...row,
    actorKind: row.actorKind as EventRow['actorKind'],
    data: objectOf(row.data),
  }))
}

const objectOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}

/** Deletes at most `limit` events older than `before`; returns how many. */
export async function pruneEvents(db: Store, before: Instant, limit: number): Promise<number> {
  const result = await db
    .deleteFrom('events')
    .where('id', 'in', (eb) =>
      eb.selectFrom('events').select('id').where('at', '<', new Date(before)).limit(limit),
    )
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

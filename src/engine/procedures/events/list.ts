import { list as contract } from '#api/events.ts'
import { handleTx } from '#engine/handle.ts'
import { pageOf } from '#engine/records/page.ts'
import { listEvents } from '#store/events.ts'

export const list = handleTx(contract, async ({ tx, orgId }, { limit, cursor, subject }) => {
  const rows = await listEvents(tx, { orgId, limit: limit + 1, cursor, subject })
  const { shown, nextCursor } = pageOf(rows, limit, ({ id }) => id)
  return {
    events: shown.map((event) => ({
      id: event.id,
      at: event.at.toISOString(),
      kind: event.kind,
      actor_kind: event.actorKind,
      actor: event.actor,
      ip: event.ip,
      request_id: event.requestId,
      subject: event.subject,
      data: event.data,
    })),
    next_cursor: nextCursor,
  }
})

// Ends of sessions on their way to the store: gathered, so that a fleet that leaves at once costs a few writes, and
// kept until they are written, so that a database that is away loses none.
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Random } from '#lib/random.ts'
import type { Store } from '#store/connect.ts'
import { startEngine } from '#store/engines.ts'
import { recordNodeEvents } from '#store/sessions-events.ts'
import { endSessions, endSessionsOfEngine, type SessionKey } from '#store/sessions.ts'
import type { NodeSession, SessionEnd } from '#engine/gateway/node-session.ts'

const RETRY_MS = 1_000
const BATCH_MAX = 500

type Ended = SessionKey & { nodeId: string; end: SessionEnd }

export type SessionEndsDeps = {
  db: Store
  clock: Clock
  random: Random
  log: Logger
  engineId: string
}

export class SessionEnds {
  readonly #deps: SessionEndsDeps
  readonly loop: Loop
  #waiting: Ended[] = []

  constructor(deps: SessionEndsDeps) {
    this.#deps = deps
    this.loop = new Loop(
      { name: 'session-ends', everyMs: RETRY_MS, pass: () => this.flush() },
      deps,
    )
  }

  start(): void {
    this.loop.start()
  }

  add(session: NodeSession, end: SessionEnd): void {
    const { nodeRecordId, epoch, nodeId } = session.facts
    // A replaced session is over by the newer one's rows.
    if (end.reason === 'replaced') return
    this.#waiting.push({ nodeRecordId, epoch, nodeId, end })
    this.loop.wake()
  }

  /** Writes everything that waits. Rejects when the store is away; nothing is lost then. */
  async flush(): Promise<Record<string, unknown>> {
    let written = 0
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, BATCH_MAX)
      await this.#write(batch)
      this.#waiting.splice(0, batch.length)
      written += batch.length
    }
    return { written }
  }

  async stop(): Promise<void> {
    await this.loop.stop()
    await this.flush()
  }

  async #write(batch: Ended[]): Promise<void> {
    const { db, clock, random, engineId } = this.#deps
    const now = clock.now()
    for (const connectivity of ['disconnected', 'unreachable'] as const) {
      const ends = batch.filter(
        ({ end }) => (end.reason === 'silence') === (connectivity === 'unreachable'),
      )
      const live = await endSessions(db, ends, { connectivity, now })
      const orgs = new Map(live.map((row) => [row.nodeRecordId, row.orgId]))
      const events = ends.flatMap(({ nodeRecordId, epoch, nodeId, end }) => {
        const orgId = orgs.get(nodeRecordId)
        if (orgId === undefined) return []
        const kind =
          connectivity === 'unreachable'
            ? ('node.unreachable' as const)
            : ('node.disconnected' as const)
        const actor =
          end.reason === 'left'
            ? ({ kind: 'node', id: nodeId } as const)
            : ({ kind: 'engine', id: engineId } as const)
        return [{ kind, orgId, nodeRecordId, actor, data: { epoch, ...end } }]
      })
      await recordNodeEvents(db, events, { now, random })
    }
  }
}

/** Writes the engine's row; what the rows say that it holds is of a process that is gone. */
export async function endFormerSelf(
  deps: Omit<SessionEndsDeps, 'log'> & { version: string },
  address: string,
): Promise<void> {
  const { db, clock, engineId: id, version } = deps
  await startEngine(db, { id, version, address, now: clock.now() })
  const ended = await endSessionsOfEngine(db, id, clock.now())
  await recordEngineEnds(deps, ended, 'the engine started again')
}

/** An engine's sessions ended with it: one event a node. */
export async function recordEngineEnds(
  { db, clock, random, engineId }: Omit<SessionEndsDeps, 'log'>,
  ended: readonly { nodeRecordId: string; orgId: string }[],
  detail: string,
): Promise<void> {
  const events = ended.map(({ nodeRecordId, orgId }) => ({
    kind: 'node.disconnected' as const,
    orgId,
    nodeRecordId,
    actor: { kind: 'engine' as const, id: engineId },
    data: { reason: 'engine-gone', detail },
  }))
  await recordNodeEvents(db, events, { now: clock.now(), random })
}

// Who is alive (D18, ND-16, ND-17): beats this engine, sweeps its sessions, and finds engines and nodes that fell silent.
//
// Invariants
// 1. Only healthy time counts: a stalled engine, or one whose database is away, marks nobody.
// 2. Clocks are never compared: an engine is dead when its beat stood still for an observer's own monotonic time.
// 3. A node without a session is `disconnected`, and `unreachable` once that has lasted as long as silence may.
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Random } from '#lib/random.ts'
import { ENGINE_DEAD_AFTER_MS, UNREACHABLE_AFTER_MS } from '#core/node/limits.ts'
import type { Store } from '#store/connect.ts'
import { beatEngine } from '#store/engines.ts'
import { recordNodeEvents } from '#store/sessions-events.ts'
import {
  endSessionsOfEngine,
  markUnreachable,
  nodesWithoutSession,
  type SessionKey,
} from '#store/sessions.ts'
import { HealthyTime } from '#engine/gateway/healthy-time.ts'
import { recordEngineEnds } from '#engine/gateway/session-ends.ts'
import { SWEEP_MS } from '#engine/gateway/start-gateway.ts'

export type LivenessDeps = {
  db: Store
  clock: Clock
  random: Random
  log: Logger
  engineId: string
  gateway: { readonly beatMs: number; sweep(silenceMs: number): void }
  /** UNREACHABLE_AFTER_MS and ENGINE_DEAD_AFTER_MS, unless a test says less. */
  unreachableAfterMs?: number
  engineDeadAfterMs?: number
}

/** The loop; start it once the gateway listens. */
export function livenessLoop(deps: LivenessDeps): Loop {
  const liveness = new Liveness(deps)
  return new Loop({ name: 'liveness', everyMs: SWEEP_MS, pass: () => liveness.pass() }, deps)
}

type Beat = { beat: number; since: number; buried: boolean }
type Silent = { epoch: number; since: number }

class Liveness {
  readonly #deps: LivenessDeps
  /** Moves only when a pass reached the database to its end. */
  readonly #observing: HealthyTime
  readonly #beats = new Map<string, Beat>()
  #silent = new Map<string, Silent>()

  constructor(deps: LivenessDeps) {
    this.#deps = deps
    this.#observing = new HealthyTime(deps.clock, SWEEP_MS)
  }

  async pass(): Promise<Record<string, unknown>> {
    const { db, engineId, gateway } = this.#deps
    const silenceMs = this.#deps.unreachableAfterMs ?? UNREACHABLE_AFTER_MS
    gateway.sweep(silenceMs)
    const beats = await beatEngine(db, engineId)
    for (const { id, beat } of beats) if (id !== engineId) await this.#observe(id, beat)
    const marked = await this.#mark(Math.max(silenceMs, 3 * gateway.beatMs))
    this.#observing.tick()
    return { engines: beats.length, silent: this.#silent.size, marked }
  }

  async #observe(id: string, beat: number): Promise<void> {
    const now = this.#observing.now()
    const known = this.#beats.get(id)
    if (known?.beat !== beat) {
      this.#beats.set(id, { beat, since: now, buried: false })
      return
    }
    const deadAfterMs = this.#deps.engineDeadAfterMs ?? ENGINE_DEAD_AFTER_MS
    if (known.buried || now - known.since < deadAfterMs) return
    const ended = await endSessionsOfEngine(this.#deps.db, id, this.#deps.clock.now())
    await recordEngineEnds(this.#deps, ended, `engine ${id} is gone`)
    known.buried = true
    if (ended.length > 0)
      this.#deps.log.warn({ engine: id, nodes: ended.length }, 'an engine is gone')
  }

  async #mark(limitMs: number): Promise<number> {
    const { db, clock, random, engineId } = this.#deps
    const now = this.#observing.now()
    const silent = new Map<string, Silent>()
    const due: SessionKey[] = []
    for (const { nodeRecordId, epoch } of await nodesWithoutSession(db)) {
      const known = this.#silent.get(nodeRecordId)
      const since = known?.epoch === epoch ? known.since : now
      silent.set(nodeRecordId, { epoch, since })
      if (now - since >= limitMs) due.push({ nodeRecordId, epoch })
    }
    this.#silent = silent
    const marked = await markUnreachable(db, due, clock.now())
    const events = marked.map((row) => ({
      ...row,
      kind: 'node.unreachable' as const,
      actor: { kind: 'engine' as const, id: engineId },
      data: { reason: 'no session' },
    }))
    await recordNodeEvents(db, events, { now: clock.now(), random })
    return marked.length
  }
}

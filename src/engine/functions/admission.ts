// Admission: an invocation gets a slot of its version, an idle one, a new one, or none.
// 1. Invocations of one version are served in the order they came.
// 2. A slot is used only where placement would put the work now: a node that drains, changed its tier or lost its
//    session gets no invocation, though its slots stand (000-43, PL-2). The rows that say so are read each time.
// 3. An invocation waits at most `waitMs`, and only while some node of its org could ever run it (D43).
// 4. One version places one slot at a time; different versions race in the store, which never overbooks.
import { workloadOf } from '#core/function/workload.ts'
import type { PlacementNode } from '#core/node/node.ts'
import { couldEverFit, explain, fits, summary, type Workload } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { Store } from '#store/connect.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import { fitsElsewhere, placementNodes } from '#store/placement.ts'
import { admissibleSlots, adoptSlots, releaseSlots, type SlotRow } from '#store/slots.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'
import type { Placer } from '#engine/functions/placer.ts'
import { Signal } from '#engine/functions/signal.ts'
import { SlotTable, type Slot } from '#engine/functions/slot-table.ts'

/** A busy slot that may be free this soon is waited for: a booking and a cold child cost more. */
const GROW_AFTER_MS = 50
/** Room may appear without a word here, by another engine or an expiry: looked for this often (PL-4). */
const LOOK_AGAIN_MS = 500
/** A version that found no room for this long takes turns with those that hold it: their next free slot is given up. */
const TURN_AFTER_MS = 500
/** Invocations of one function that wait; more are told to come back. */
const WAITING_MAX = 1_000

export type Wanted = {
  fn: FunctionRow
  /** Nodes that failed this invocation. */
  exclude: ReadonlySet<string>
  /** The version's admissible slots, if they were read a moment ago. */
  rows?: readonly SlotRow[]
  waitMs: number
  signal: AbortSignal
}

export type Admitted =
  | { kind: 'slot'; slot: Slot }
  | { kind: 'no-node'; message: string }
  | { kind: 'cancelled' }

type Waiter = Wanted & {
  since: number
  counted: boolean
  settle(admitted: Admitted | AppError): void
}

type Queue = {
  fn: FunctionRow
  waiters: Waiter[]
  changed: Signal
  running: boolean
  /** Nodes whose room it waits for, once it has waited for TURN_AFTER_MS. */
  claims: ReadonlySet<string>
}

export type AdmissionDeps = {
  id: string
  db: Store
  clock: Clock
  log: Logger
  gateway: Gateway
  metrics: Metrics
  placer: Placer
}

export class Admission {
  readonly #deps: AdmissionDeps
  readonly #table = new SlotTable()
  readonly #queues = new Map<string, Queue>()

  constructor(deps: AdmissionDeps) {
    this.#deps = deps
  }

  get slots(): number {
    return this.#table.size
  }

  /** Resolves with a slot, which `release` must give back; rejects with UNAVAILABLE (store away, busy, other engine). */
  async acquire(wanted: Wanted): Promise<Admitted> {
    if (!this.#queues.has(wanted.fn.versionId)) {
      const slot = this.#take(wanted.rows ?? (await this.#rows(wanted.fn)), wanted)
      if (slot) return { kind: 'slot', slot }
    }
    return this.#enqueue(wanted)
  }

  /** The invocation is over. `giveUp`: the node failed, so the next slot had better be elsewhere. */
  release(slot: Slot, { giveUp }: { giveUp: boolean }): void {
    const { row } = slot
    this.#table.free(slot, this.#deps.clock.monotonic())
    if (giveUp || !row.current || this.#claimed(row)) this.#releaseSoon([slot])
    else this.#queues.get(row.versionId)?.changed.fire()
  }

  /** Something may have freed room or brought a node up. */
  wake(): void {
    for (const queue of this.#queues.values()) queue.changed.fire()
  }

  /** The function runs another version now, or none: its older slots go as soon as they are idle. */
  supersede(functionId: string, current: string | undefined): void {
    for (const { row } of this.#table.all())
      if (row.functionId === functionId) row.current = row.versionId === current
    this.#releaseSoon(this.#table.superseded(functionId, current))
  }

  /**
   * Brings memory and rows together: takes over the slots of nodes that dialled this engine and those of a former self,
   * and forgets what is no longer ours. Then gives back what was idle for `idleMs` or belongs to no current version.
   */
  async tidy(idleMs: number): Promise<{ slots: number; adopted: number; released: number }> {
    const known = this.#table.all()
    const rows = await adoptSlots(this.#deps.db, this.#deps.id)
    const now = this.#deps.clock.monotonic()
    const strangers = rows.filter(
      (row) => !this.#table.has(row.id) && !this.#deps.placer.booking.has(row.id),
    )
    for (const row of strangers) this.#table.add(row, now)
    const stands = new Set(rows.map((row) => row.id))
    for (const slot of known) if (!stands.has(slot.row.id)) this.#table.remove(slot)
    this.#table.among(rows)
    const idle = this.#table.idleSince(now - idleMs)
    const old = this.#table.idleSince(now).filter(({ row }) => !row.current)
    const released = await this.#release([...new Set([...idle, ...old])])
    if (strangers.length > 0) this.wake()
    return { slots: this.#table.size, adopted: strangers.length, released }
  }

  /** Whether another version has waited for the room of this slot long enough to have its turn. */
  #claimed(row: SlotRow): boolean {
    for (const { fn, claims } of this.#queues.values())
      if (fn.versionId !== row.versionId && claims.has(row.nodeRecordId)) return true
    return false
  }

  #rows(fn: FunctionRow): Promise<SlotRow[]> {
    const { db, id } = this.#deps
    return admissibleSlots(db, workloadOf(fn), { versionId: fn.versionId, engineId: id })
  }

  /** Ours among the rows, on nodes whose session is here. */
  #usable(rows: readonly SlotRow[], wanted: Wanted): Slot[] {
    return this.#table
      .among(rows)
      .filter(
        ({ row }) =>
          !wanted.exclude.has(row.nodeRecordId) &&
          this.#deps.gateway.session(row.nodeRecordId) !== undefined,
      )
  }

  #take(rows: readonly SlotRow[], wanted: Wanted): Slot | undefined {
    return this.#table.take(this.#usable(rows, wanted), this.#deps.clock.monotonic())
  }

  #enqueue(wanted: Wanted): Promise<Admitted> {
    const { fn, signal } = wanted
    const queue = this.#queues.get(fn.versionId) ?? {
      fn,
      waiters: [],
      changed: new Signal(this.#deps.clock),
      running: false,
      claims: new Set<string>(),
    }
    if (queue.waiters.length >= WAITING_MAX) throw tooMany(fn.name)
    this.#queues.set(fn.versionId, queue)
    return new Promise((resolve, reject) => {
      const onAbort = (): void => waiter.settle({ kind: 'cancelled' })
      const waiter: Waiter = {
        ...wanted,
        since: this.#deps.clock.monotonic(),
        counted: false,
        settle(admitted) {
          signal.removeEventListener('abort', onAbort)
          const at = queue.waiters.indexOf(waiter)
          if (at >= 0) queue.waiters.splice(at, 1)
          if (admitted instanceof AppError) reject(admitted)
          else resolve(admitted)
        },
      }
      queue.waiters.push(waiter)
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      if (queue.running) queue.changed.fire()
      else void this.#serve(queue)
    })
  }

  /** Runs while the queue has waiters. */
  async #serve(queue: Queue): Promise<void> {
    queue.running = true
    try {
      while (queue.waiters.length > 0) {
        const pause = await this.#round(queue)
        if (pause > 0 && queue.waiters.length > 0) await queue.changed.wait(pause)
      }
    } catch (error) {
      const told =
        error instanceof AppError
          ? error
          : new AppError('INTERNAL', messageOf(error), { cause: error })
      this.#deps.log.error({ err: error, function: queue.fn.name }, 'admission failed')
      for (const waiter of queue.waiters.slice()) waiter.settle(told)
    } finally {
      queue.running = false
      this.#queues.delete(queue.fn.versionId)
    }
  }

  /** One look at rows and fleet. Returns how long to pause unless something changes; 0 looks again at once. */
  async #round(queue: Queue): Promise<number> {
    const rows = await this.#rows(queue.fn)
    queue.claims = new Set()
    for (const waiter of queue.waiters.slice()) {
      const slot = this.#take(rows, waiter)
      if (slot) waiter.settle({ kind: 'slot', slot })
    }
    const [head] = queue.waiters
    if (!head) return 0
    const busy = this.#usable(rows, head).length > 0
    const waited = this.#deps.clock.monotonic() - head.since
    if (busy && waited < GROW_AFTER_MS && waited < head.waitMs) return GROW_AFTER_MS - waited
    if (await this.#grow(head)) return 0
    const work = workloadOf(queue.fn)
    const nodes = await placementNodes(this.#deps.db, queue.fn.orgId)
    if (await this.#reclaim(nodes, work, head)) return 0
    if (!busy && (await fitsElsewhere(this.#deps.db, work, this.#deps.id))) {
      head.settle(otherEngine(queue.fn.name))
      return 0
    }
    return this.#verdict(queue, nodes, work)
  }

  /** A new slot, kept for the next round, which hands it to whoever is first. */
  async #grow(head: Waiter): Promise<boolean> {
    const row = await this.#deps.placer.place(head.fn, head.exclude)
    if (!row) return false
    this.#deps.metrics.placements.inc({ outcome: 'placed' })
    this.#table.add(row, this.#deps.clock.monotonic())
    return true
  }

  /** No room: idle slots of other versions give way, the longest idle first, on one node where that is enough. */
  async #reclaim(nodes: readonly PlacementNode[], work: Workload, head: Waiter): Promise<boolean> {
    const idle = this.#table.all().filter(({ state }) => state === 'idle')
    for (const node of nodes) {
      if (head.exclude.has(node.id) || !this.#deps.gateway.session(node.id)) continue
      const given: Slot[] = []
      const after = { ...node }
      const here = idle.filter(
        ({ row }) => row.nodeRecordId === node.id && row.versionId !== head.fn.versionId,
      )
      for (const slot of here.toSorted((a, b) => a.since - b.since)) {
        if (fits(after, work).ok) break
        after.usedCpuMillis -= slot.row.cpuMillis
        after.usedMemMb -= slot.row.memMb
        given.push(slot)
      }
      if (given.length > 0 && fits(after, work).ok) return (await this.#release(given)) > 0
    }
    return false
  }

  /** Who has waited long enough, or waits for nothing, hears why. */
  #verdict(queue: Queue, nodes: readonly PlacementNode[], work: Workload): number {
    const now = this.#deps.clock.monotonic()
    const message = summary(explain(nodes, work), work)
    let next = LOOK_AGAIN_MS
    for (const waiter of queue.waiters.slice()) {
      const left = waiter.since + waiter.waitMs - now
      const hope = nodes.some((node) => !waiter.exclude.has(node.id) && couldEverFit(node, work))
      if (left <= 0 || !hope) {
        this.#deps.metrics.placements.inc({ outcome: 'no-node' })
        waiter.settle({ kind: 'no-node', message })
      } else {
        if (!waiter.counted) this.#deps.metrics.placements.inc({ outcome: 'waited' })
        waiter.counted = true
        next = Math.min(next, left)
      }
    }
    const [head] = queue.waiters
    if (head && now - head.since >= TURN_AFTER_MS)
      queue.claims = new Set(
        nodes.filter((node) => couldEverFit(node, work)).map((node) => node.id),
      )
    return next
  }

  #releaseSoon(slots: readonly Slot[]): void {
    this.#release(slots).catch((error: unknown) =>
      this.#deps.log.warn(
        { err: error },
        'slots could not be given back; the next pass tries again',
      ),
    )
  }

  /** Gives idle slots back; those that cannot be now stay idle. */
  async #release(slots: readonly Slot[]): Promise<number> {
    const going = slots.filter(({ state }) => state === 'idle')
    for (const slot of going) slot.state = 'releasing'
    let released = 0
    try {
      for (const [nodeRecordId, mates] of Map.groupBy(going, ({ row }) => row.nodeRecordId)) {
        const ids = mates.map(({ row }) => row.id)
        released += await releaseSlots(this.#deps.db, {
          nodeRecordId,
          engineId: this.#deps.id,
          ids,
        })
        for (const slot of mates) this.#table.remove(slot)
      }
    } finally {
      for (const slot of going) if (this.#table.has(slot.row.id)) slot.state = 'idle'
    }
    if (released > 0) this.wake()
    return released
  }
}

const tooMany = (name: string): AppError =>
  new AppError('UNAVAILABLE', `${WAITING_MAX} invocations of ${name} wait already`, {
    details: { reason: 'QUEUE_FULL', retryAfterMs: 1_000, next: 'Try again in a second' },
  })

const otherEngine = (name: string): AppError =>
  new AppError('UNAVAILABLE', `The node that can run ${name} is connected to another engine`, {
    details: {
      reason: 'NODE_ELSEWHERE',
      retryAfterMs: 0,
      next: 'Send the call again; another engine may answer it',
    },
  })

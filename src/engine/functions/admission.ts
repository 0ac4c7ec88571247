// Admission: an invocation gets a unit of a slot of its version: an idle one, a new one, or none.
// 1. Invocations of one version are served in the order they came.
// 2. A unit is used only where placement would put the work now: a node that drains, changed its tier or lost its session
//    gets no invocation, though its slots stand (000-43, PL-2).
// 3. An invocation waits at most `waitMs`, and only while some node of its org could ever run it (D43).
// 4. One version books at a time; different versions race in the store, which never overbooks. Orgs take turns (PL-4).
// 5. While the store is away units that stand are used, and nothing new is booked.
import type { PlacementNode } from '#core/node/node.ts'
import { couldEverFit, explain, fits, summary } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { Store } from '#store/connect.ts'
import { fitsElsewhere, placementNodes } from '#store/placement.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'
import type { Catalog, KnownFunction } from '#engine/functions/catalog.ts'
import type { Ticks } from '#engine/functions/known.ts'
import { OrgTurns } from '#engine/functions/org-turns.ts'
import type { Given, SlotKeeper } from '#engine/functions/slot-keeper.ts'
import type { Slot, SlotTable } from '#engine/functions/slot-table.ts'
import { HUNGRY_AFTER_MS, type Queue, type Waiter, Waiting } from '#engine/functions/waiting.ts'

/** Room may appear without a word here, by another engine or an expiry: looked for this often (PL-4). */
const LOOK_AGAIN_MS = 500
/** Looks of one version that others' changes cause are this far apart. */
const LOOK_SOON_MS = 10
/** Bookings under way at once: the other connections of the pool are everybody else's. */
const BOOKINGS_AT_ONCE = 8

export type Wanted = {
  known: KnownFunction
  /** Nodes that failed this invocation. */
  exclude: ReadonlySet<string>
  waitMs: number
  signal: AbortSignal
}

export type Admitted =
  | { kind: 'slot'; slot: Slot; node: PlacementNode }
  | { kind: 'no-node'; message: string }
  | { kind: 'cancelled' }

type Waits = Waiter<Admitted>

export type AdmissionDeps = {
  id: string
  db: Store
  clock: Clock
  log: Logger
  gateway: Gateway
  metrics: Metrics
  ticks: Ticks
  table: SlotTable
  catalog: Catalog
}

export class Admission {
  readonly #deps: AdmissionDeps
  readonly #keeper: SlotKeeper
  readonly #waiting: Waiting<Admitted>
  readonly #bookings = new OrgTurns(BOOKINGS_AT_ONCE)

  constructor(deps: AdmissionDeps, keeper: (freed: () => void) => SlotKeeper) {
    this.#deps = deps
    this.#waiting = new Waiting(deps)
    this.#keeper = keeper(() => this.wake())
  }

  /**
   * Resolves with a unit, which `release` must give back; rejects with UNAVAILABLE (store away, other engine).
   * `isRead`: slots and nodes have been read since the invocation came.
   */
  async acquire(wanted: Wanted, isRead: boolean): Promise<Admitted> {
    const { known, exclude } = wanted
    const first = !this.#waiting.get(known.fn.versionId)
    const taken =
      first && (isRead || this.#deps.catalog.isSure) ? this.#take(known, exclude) : undefined
    return taken ?? this.#enqueue(wanted)
  }

  /** The invocation is over. `giveUp`: the node failed, so the next unit had better be elsewhere. */
  release(slot: Slot, { giveUp }: { giveUp: boolean }): void {
    const { catalog, clock, table } = this.#deps
    const { row } = slot
    if (!table.free(slot, clock.monotonic())) return
    const queue = this.#waiting.get(row.versionId)
    if (giveUp || !row.current || this.#waiting.isClaimed(slot)) {
      this.#keeper.giveBackSoon([{ slot, units: 1 }])
      queue?.poke()
    } else if (queue && catalog.isSure) this.#handOver(queue)
    else if (queue) queue.poke()
    else this.#waiting.pokeClaims(row.nodeRecordId)
  }

  /** Something may have freed room or brought a node up. */
  wake(): void {
    this.#waiting.pokeAll()
  }

  /** The function runs this version now, or none (0): its other slots go as soon as they are idle. */
  supersede(functionId: string, version: number): void {
    const old: Given[] = []
    for (const slot of this.#deps.table.all()) {
      if (slot.row.functionId !== functionId) continue
      slot.row = { ...slot.row, current: slot.row.version === version }
      if (!slot.row.current) old.push({ slot, units: slot.idle.length })
    }
    this.#keeper.giveBackSoon(old)
  }

  async tidy(idleMs: number): Promise<{ slots: number; adopted: number; released: number }> {
    const done = await this.#keeper.tidy(idleMs)
    if (done.adopted > 0) this.wake()
    return done
  }

  #take(known: KnownFunction, exclude: ReadonlySet<string>): Admitted | undefined {
    const { catalog, table } = this.#deps
    let best: Slot | undefined
    let usedAt = -Infinity
    for (const slot of table.ofVersion(known.fn.versionId)) {
      const since = slot.idle.at(-1)
      if (since === undefined || since < usedAt || exclude.has(slot.row.nodeRecordId)) continue
      if (!catalog.usable(slot, known.work)) continue
      best = slot
      usedAt = since
    }
    const node = best && catalog.node(best.row.nodeRecordId)
    if (!best || !node) return undefined
    table.take(best)
    return { kind: 'slot', slot: best, node }
  }

  /** Whether the version has units that the waiter can use once they are idle. */
  #hasUnits(known: KnownFunction, waiter: Waits): boolean {
    for (const slot of this.#deps.table.ofVersion(known.fn.versionId)) {
      if (slot.busy + slot.idle.length === 0 || waiter.exclude.has(slot.row.nodeRecordId)) continue
      if (this.#deps.catalog.usable(slot, known.work)) return true
    }
    return false
  }

  /** Idle units to those who wait, in their order. */
  #handOver(queue: Queue<Admitted>): void {
    for (const waiter of queue.waiters) {
      const taken = this.#take(queue.known, waiter.exclude)
      if (taken) waiter.settle(taken)
      else if (waiter.exclude.size === 0) return
    }
  }

  #enqueue({ known, exclude, waitMs, signal }: Wanted): Promise<Admitted> {
    const { clock } = this.#deps
    const queue = this.#waiting.of(known)
    return new Promise((resolve, reject) => {
      const onAbort = (): void => waiter.settle({ kind: 'cancelled' })
      const waiter: Waits = {
        exclude,
        waitMs,
        since: clock.monotonic(),
        counted: false,
        settle(how) {
          signal.removeEventListener('abort', onAbort)
          queue.waiters.delete(waiter)
          if (how instanceof AppError) reject(how)
          else resolve(how)
        },
      }
      queue.waiters.add(waiter)
      signal.addEventListener('abort', onAbort, { once: true })
      if (signal.aborted) onAbort()
      if (!queue.running) void this.#serve(queue)
      else if (queue.waiters.size === 1) queue.poke()
    })
  }

  /** Runs while the queue has waiters. */
  async #serve(queue: Queue<Admitted>): Promise<void> {
    queue.running = true
    while (queue.waiters.size > 0) {
      queue.again = false
      const pause = await this.#round(queue).catch((error: unknown) => this.#failed(queue, error))
      if (pause === 0 || queue.waiters.size === 0) continue
      await queue.changed.wait(queue.again ? Math.min(pause, LOOK_SOON_MS) : pause)
    }
    queue.running = false
    this.#waiting.remove(queue)
  }

  /** One look at rows and fleet. Returns how long to pause unless something changes; 0 looks again at once. */
  async #round(queue: Queue<Admitted>): Promise<number> {
    const { catalog, clock, db, id } = this.#deps
    const { known } = queue
    await catalog.readSlots(known)
    this.#handOver(queue)
    const { head } = queue
    if (!head) return 0
    const busy = this.#hasUnits(known, head)
    const waited = clock.monotonic() - head.since
    if (busy && waited < HUNGRY_AFTER_MS && waited < head.waitMs) return HUNGRY_AFTER_MS - waited
    if (await this.#grow(queue, head)) return 0
    const readAt = this.#deps.ticks.now
    const nodes = await placementNodes(db, known.fn.orgId)
    for (const node of nodes) catalog.learnNode(node, readAt)
    if (await this.#reclaim(nodes, known, head)) return 0
    if (!busy && (await fitsElsewhere(db, known.work, id))) {
      head.settle(otherEngine(known.fn.name))
      return 0
    }
    return this.#verdict(queue, nodes)
  }

  /** Who has units that may fall idle waits on; everybody else hears it. */
  #failed(queue: Queue<Admitted>, error: unknown): number {
    const { catalog, clock, log } = this.#deps
    const told =
      error instanceof AppError
        ? error
        : new AppError('INTERNAL', messageOf(error), { cause: error })
    if (told.code === 'INTERNAL')
      log.error({ err: error, function: queue.known.fn.name }, 'admission failed')
    if (catalog.isAway) this.#handOver(queue)
    const now = clock.monotonic()
    for (const waiter of queue.waiters)
      if (
        !catalog.isAway ||
        now - waiter.since >= waiter.waitMs ||
        !this.#hasUnits(queue.known, waiter)
      )
        waiter.settle(told)
    return LOOK_AGAIN_MS
  }

  /** New units, kept for the next round, which hands them to whoever is first. More at once when many wait for long. */
  async #grow(queue: Queue<Admitted>, head: Waits): Promise<boolean> {
    const { clock, metrics, table } = this.#deps
    const { known } = queue
    const exclude = head.exclude.union(this.#waiting.barred(queue))
    const unitsMax = Math.max(1, Math.min(table.unitsOf(known.fn.versionId), queue.waiters.size))
    const grown = await this.#bookings.run(known.fn.orgId, () =>
      this.#keeper.grow(known, { exclude, unitsMax }),
    )
    if (!grown) return false
    queue.gainedAt = clock.monotonic()
    metrics.placements.inc({ outcome: 'placed' })
    return true
  }

  /** No room: idle units of other versions give way, the longest idle first, on one node where that is enough. */
  async #reclaim(
    nodes: readonly PlacementNode[],
    known: KnownFunction,
    head: Waits,
  ): Promise<boolean> {
    const { gateway, table } = this.#deps
    for (const node of nodes) {
      if (head.exclude.has(node.id) || !gateway.session(node.id)) continue
      const idle = [...table.ofNode(node.id)]
        .filter(({ row }) => row.versionId !== known.fn.versionId)
        .flatMap((slot) => slot.idle.map((since) => ({ slot, since })))
        .toSorted((a, b) => a.since - b.since)
      const after = { ...node }
      const given = new Map<Slot, number>()
      for (const { slot } of idle) {
        if (fits(after, known.work).ok) break
        after.usedCpuMillis -= slot.row.cpuMillis
        after.usedMemMb -= slot.row.memMb
        given.set(slot, (given.get(slot) ?? 0) + 1)
      }
      if (given.size === 0 || !fits(after, known.work).ok) continue
      const all = [...given].map(([slot, units]) => ({ slot, units }))
      return (await this.#keeper.giveBack(all)) > 0
    }
    return false
  }

  /** Who has waited long enough, or waits for nothing, hears why. */
  #verdict(queue: Queue<Admitted>, nodes: readonly PlacementNode[]): number {
    const { clock, metrics } = this.#deps
    const { work } = queue.known
    const now = clock.monotonic()
    const possible = nodes.filter((node) => couldEverFit(node, work)).map((node) => node.id)
    queue.claims = new Set(possible)
    let message: string | undefined
    let next = LOOK_AGAIN_MS
    for (const waiter of queue.waiters) {
      const left = waiter.since + waiter.waitMs - now
      const hope = possible.some((id) => !waiter.exclude.has(id))
      if (left <= 0 || !hope) {
        message ??= summary(explain(nodes, work), work)
        metrics.placements.inc({ outcome: 'no-node' })
        waiter.settle({ kind: 'no-node', message })
      } else {
        if (!waiter.counted) metrics.placements.inc({ outcome: 'waited' })
        waiter.counted = true
        next = Math.min(next, left)
      }
    }
    return next
  }
}

const otherEngine = (name: string): AppError =>
  new AppError('UNAVAILABLE', `The node that can run ${name} is connected to another engine`, {
    details: {
      reason: 'NODE_ELSEWHERE',
      retryAfterMs: 0,
      next: 'Send the call again; another engine may answer it',
    },
  })

// Invocations that wait for a unit of their version, and which room they may claim from others (PL-4).
import { isBefore, isTurnOf, type Claim, type Holding } from '#core/placement/turns.ts'
import { shareOf } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import type { AppError } from '#lib/error.ts'
import type { Catalog, KnownFunction } from '#engine/functions/catalog.ts'
import { Signal } from '#engine/functions/signal.ts'
import type { Slot, SlotTable } from '#engine/functions/slot-table.ts'

/** A busy unit that may be free this soon is waited for: a booking and a cold child cost more. */
export const HUNGRY_AFTER_MS = 50

export type Waiter<Settled> = {
  /** Nodes that failed this invocation. */
  exclude: ReadonlySet<string>
  waitMs: number
  /** Monotonic. */
  since: number
  counted: boolean
  settle(how: Settled | AppError): void
}

/** Those of one version, in the order they came. */
export class Queue<Settled> {
  readonly known: KnownFunction
  readonly waiters = new Set<Waiter<Settled>>()
  readonly changed: Signal
  running = false
  /** Something changed while it looked. */
  again = false
  /** Nodes that are full, and whose room it waits for. */
  claims: ReadonlySet<string> = new Set()
  /** When the version last got more room, or the first of them came; monotonic. */
  gainedAt: number

  constructor(known: KnownFunction, clock: Clock) {
    this.known = known
    this.changed = new Signal(clock)
    this.gainedAt = clock.monotonic()
  }

  get head(): Waiter<Settled> | undefined {
    for (const waiter of this.waiters) return waiter
    return undefined
  }

  poke(): void {
    this.again = true
    this.changed.fire()
  }
}

type WaitingDeps = { clock: Clock; table: SlotTable; catalog: Catalog }

/** All queues of the engine. */
export class Waiting<Settled> {
  readonly #deps: WaitingDeps
  readonly #queues = new Map<string, Queue<Settled>>()

  constructor(deps: WaitingDeps) {
    this.#deps = deps
  }

  get(versionId: string): Queue<Settled> | undefined {
    return this.#queues.get(versionId)
  }

  /** The version's queue, made if need be. */
  of(known: KnownFunction): Queue<Settled> {
    const { versionId } = known.fn
    const queue = this.#queues.get(versionId) ?? new Queue(known, this.#deps.clock)
    this.#queues.set(versionId, queue)
    return queue
  }

  remove(queue: Queue<Settled>): void {
    this.#queues.delete(queue.known.fn.versionId)
  }

  pokeAll(): void {
    for (const queue of this.#queues.values()) queue.poke()
  }

  /** Whether the unit that has just fallen idle in the slot is the turn of another version, or another org. */
  isClaimed(slot: Slot): boolean {
    const { row, since } = slot
    const heldMs = this.#deps.clock.monotonic() - since
    return this.#claimsOf(row.nodeRecordId, row.versionId).some(([claim, held]) =>
      isTurnOf(claim, { orgId: row.orgId, versionId: row.versionId, heldMs }, held),
    )
  }

  /** Room of the node is free, or idle: who waits for it looks now. */
  pokeClaims(nodeRecordId: string): void {
    for (const queue of this.#queues.values()) if (queue.claims.has(nodeRecordId)) queue.poke()
  }

  /** Nodes whose free room is somebody else's before it is the queue's. */
  barred(queue: Queue<Settled>): Set<string> {
    const nodes = new Set<string>()
    for (const other of this.#queues.values())
      if (other !== queue) for (const node of other.claims) nodes.add(node)
    const barred = new Set<string>()
    for (const node of nodes)
      if (
        this.#claimsOf(node, queue.known.fn.versionId).some(([claim, held]) =>
          isBefore(claim, this.#claim(queue, node), held),
        )
      )
        barred.add(node)
    return barred
  }

  /** Claims on the node's room, but for one version's, each with what everybody holds there. */
  #claimsOf(nodeRecordId: string, but: string): [Claim, readonly Holding[]][] {
    let held: Holding[] | undefined
    const claims: [Claim, readonly Holding[]][] = []
    for (const queue of this.#queues.values()) {
      if (queue.known.fn.versionId === but || !queue.claims.has(nodeRecordId)) continue
      held ??= this.#held(nodeRecordId)
      claims.push([this.#claim(queue, nodeRecordId), held])
    }
    return claims
  }

  #claim({ known, head, gainedAt }: Queue<Settled>, nodeRecordId: string): Claim {
    const { orgId, versionId } = known.fn
    const now = this.#deps.clock.monotonic()
    const isHungry = head !== undefined && now - head.since >= HUNGRY_AFTER_MS
    const hungryMs = isHungry ? now - gainedAt : 0
    return { orgId, versionId, hungryMs, unit: this.#share(nodeRecordId, known.work) }
  }

  #held(nodeRecordId: string): Holding[] {
    return [...this.#deps.table.ofNode(nodeRecordId)].map(({ row }) => ({
      orgId: row.orgId,
      versionId: row.versionId,
      share: row.units * this.#share(nodeRecordId, row),
    }))
  }

  #share(nodeRecordId: string, unit: { cpuMillis: number; memMb: number }): number {
    const node = this.#deps.catalog.node(nodeRecordId)
    return node ? shareOf(node, unit) : 0
  }
}

// Finding a node for one more slot, and booking it there. The store checks everything again on the locked row.
import { workloadOf } from '#core/function/workload.ts'
import type { Workload } from '#core/placement/place.ts'
import { BEST_FEW, rank } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import type { Store } from '#store/connect.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import { book, candidates } from '#store/placement.ts'
import type { SlotRow } from '#store/slots.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'

/** Fresh looks at the fleet when others booked faster; later the caller waits and comes again. */
const LOOKS_MAX = 3
/** A node that failed of itself is tried last for this long. */
const AVOID_MS = 30_000
/** Artifacts whose holders are remembered. */
const HELD_MAX = 10_000

export type PlacerDeps = {
  id: string
  db: Store
  clock: Clock
  random: Random
  gateway: Gateway
}

export class Placer {
  readonly #deps: PlacerDeps
  /** Component → nodes that have shown that they hold its artifact. */
  readonly #holders = new Map<string, Set<string>>()
  readonly #failed = new Map<string, number>()
  readonly #booking = new Set<string>()

  constructor(deps: PlacerDeps) {
    this.#deps = deps
  }

  /** Slots whose booking is under way: their rows may stand before we know. */
  get booking(): ReadonlySet<string> {
    return this.#booking
  }

  /** Books one slot on the best node that fits; undefined when none does now. */
  async place(fn: FunctionRow, exclude: ReadonlySet<string>): Promise<SlotRow | undefined> {
    const { id, db, random, gateway } = this.#deps
    const work = workloadOf(fn)
    const cached = this.#holders.get(fn.componentSha256) ?? new Set<string>()
    for (let look = 0; look < LOOKS_MAX; look++) {
      const found = await candidates(db, work, { engineId: id, first: [...cached] })
      const usable = found.filter((n) => gateway.session(n.id) && !exclude.has(n.id))
      if (usable.length === 0) return undefined
      const ranked = rank(usable, work, { random, cached, avoid: this.#avoided() })
      const booked = await this.#book(
        fn,
        work,
        ranked.slice(0, BEST_FEW).map((n) => n.id),
      )
      if (booked) return booked
    }
    return undefined
  }

  /** The node holds the component's artifact now. */
  holds(componentSha256: string, nodeRecordId: string): void {
    const holders = this.#holders.get(componentSha256) ?? new Set()
    if (this.#holders.size >= HELD_MAX) this.#holders.clear()
    this.#holders.set(componentSha256, holders.add(nodeRecordId))
  }

  failed(nodeRecordId: string): void {
    this.#failed.set(nodeRecordId, this.#deps.clock.monotonic())
  }

  #avoided(): Set<string> {
    const since = this.#deps.clock.monotonic() - AVOID_MS
    for (const [node, at] of this.#failed) if (at < since) this.#failed.delete(node)
    return new Set(this.#failed.keys())
  }

  async #book(fn: FunctionRow, work: Workload, ids: string[]): Promise<SlotRow | undefined> {
    const { id, db, clock, random } = this.#deps
    const slot = {
      id: newId('slot', clock.now(), random),
      orgId: fn.orgId,
      functionId: fn.id,
      functionName: fn.name,
      versionId: fn.versionId,
      version: fn.version,
      engineId: id,
      createdAt: new Date(clock.now()),
    }
    this.#booking.add(slot.id)
    try {
      const booked =
        (await book(db, work, { slot, nodeIds: ids, wait: false })) ??
        (await book(db, work, { slot, nodeIds: ids, wait: true }))
      return (
        booked && {
          id: slot.id,
          functionId: fn.id,
          versionId: fn.versionId,
          current: true,
          cpuMillis: work.cpuMillis,
          memMb: work.memMb,
          ...booked,
        }
      )
    } finally {
      this.#booking.delete(slot.id)
    }
  }
}

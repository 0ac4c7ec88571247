// Finding a node for more units of a version, and booking them there. The store checks everything again on the locked row.
import type { PlacementNode } from '#core/node/node.ts'
import type { Workload } from '#core/placement/place.ts'
import { BEST_FEW, rank } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import type { Store } from '#store/connect.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import { book, candidates } from '#store/placement.ts'
import type { SlotRow } from '#store/functions/slots.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { KnownFunction } from '#engine/functions/catalog.ts'

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

export type Place = {
  /** Nodes that are out of the question. */
  exclude: ReadonlySet<string>
  unitsMax: number
}

export class Placer {
  readonly #deps: PlacerDeps
  /** Component → nodes that have shown that they hold its artifact. */
  readonly #holders = new Map<string, Set<string>>()
  readonly #failed = new Map<string, number>()

  constructor(deps: PlacerDeps) {
    this.#deps = deps
  }

  /** Books units on the best node that fits, in one go; undefined when none does now. */
  async place(
    { fn, work }: KnownFunction,
    { exclude, unitsMax }: Place,
  ): Promise<{ row: SlotRow; node: PlacementNode } | undefined> {
    const { id, db, random, gateway } = this.#deps
    const cached = this.#holders.get(fn.componentSha256) ?? new Set<string>()
    for (let look = 0; look < LOOKS_MAX; look++) {
      const found = await candidates(db, work, { engineId: id, first: [...cached] })
      const usable = found.filter((n) => gateway.session(n.id) && !exclude.has(n.id))
      if (usable.length === 0) return undefined
      const ranked = rank(usable, work, { random, cached, avoid: this.#avoided() })
      const nodeIds = ranked.slice(0, BEST_FEW).map((n) => n.id)
      const row = await this.#book(fn, work, { nodeIds, unitsMax })
      const node = row && usable.find((one) => one.id === row.nodeRecordId)
      if (row && node) return { row, node }
    }
    return undefined
  }

  /** The node holds the component's artifact now. */
  holds(componentSha256: string, nodeRecordId: string): void {
    const holders = this.#holders.get(componentSha256)
    if (holders?.has(nodeRecordId)) return
    if (this.#holders.size >= HELD_MAX) this.#holders.clear()
    this.#holders.set(componentSha256, (holders ?? new Set()).add(nodeRecordId))
  }

  /** Whether it has shown that it holds it. It may have dropped it since. */
  isHolder(componentSha256: string, nodeRecordId: string): boolean {
    return this.#holders.get(componentSha256)?.has(nodeRecordId) === true
  }

  failed(nodeRecordId: string): void {
    this.#failed.set(nodeRecordId, this.#deps.clock.monotonic())
  }

  #avoided(): Set<string> {
    const since = this.#deps.clock.monotonic() - AVOID_MS
    for (const [node, at] of this.#failed) if (at < since) this.#failed.delete(node)
    return new Set(this.#failed.keys())
  }

  async #book(
    fn: FunctionRow,
    work: Workload,
    where: { nodeIds: readonly string[]; unitsMax: number },
  ): Promise<SlotRow | undefined> {
    const { id, db, clock, random } = this.#deps
    const now = clock.now()
    const slot = {
      id: newId('slot', now, random),
      orgId: fn.orgId,
      functionId: fn.id,
      functionName: fn.name,
      versionId: fn.versionId,
      version: fn.version,
      engineId: id,
      createdAt: new Date(now),
    }
    const booked =
      (await book(db, work, { slot, ...where, wait: false })) ??
      (await book(db, work, { slot, ...where, wait: true }))
    if (!booked) return undefined
    const { orgId, versionId, version } = fn
    return { ...booked, orgId, functionId: fn.id, versionId, version, current: true }
  }
}

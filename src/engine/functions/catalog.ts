// What an invocation must know before it begins: the function, its slots, their nodes, the org's quota, and whether it is
// for everybody.
// 1. While the engine hears of changes, what it knows for sure is asked of nobody: a warm invocation needs no store.
// 2. While it hears nothing, every invocation reads; what its own procedures and its gateway tell counts in any case.
// 3. While the store is away, what was known last has to do (design §10): running things do not stop for a database.
import { workloadOf } from '#core/function/workload.ts'
import type { PlacementNode } from '#core/node/node.ts'
import { admissible, type Workload } from '#core/placement/place.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Store } from '#store/connect.ts'
import { type FunctionRow, publicFunction } from '#store/functions/functions.ts'
import { functionToRun, slotsOfVersion } from '#store/functions/runnable.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import { Known, type Ticks } from '#engine/functions/known.ts'
import type { Slot, SlotTable } from '#engine/functions/slot-table.ts'

const FUNCTIONS_MAX = 10_000
const NODES_MAX = 50_000
const QUOTAS_MAX = 10_000
/** Names that are no public function's: strangers choose them. */
const MISSES_MAX = 10_000
/** A store that did not answer is not asked again for this long by invocations that can do without. */
const AWAY_FOR_MS = 500
/** How long an invocation that can do without the store waits for its answer. */
const SILENT_AFTER_MS = 1_000

export type KnownFunction = {
  fn: FunctionRow
  artifact: { sha256: string; sizeBytes: number } | undefined
  work: Workload
}

export type CatalogDeps = {
  id: string
  db: Store
  clock: Clock
  gateway: Gateway
  /** Of the artifacts that nodes run. */
  preparer: string
  ticks: Ticks
  table: SlotTable
}

export class Catalog {
  readonly #deps: CatalogDeps
  readonly #functions: Known<KnownFunction>
  readonly #nodes: Known<PlacementNode>
  readonly #quotas: Known<number | null>
  /** Orgs of public functions, by what stands in their address; and addresses that are none's. */
  readonly #public: Known<string>
  readonly #misses: Known<true>
  #hearing = false
  #awayUntil = -Infinity

  constructor(deps: CatalogDeps) {
    this.#deps = deps
    this.#functions = new Known(deps.ticks, FUNCTIONS_MAX)
    this.#nodes = new Known(deps.ticks, NODES_MAX)
    this.#quotas = new Known(deps.ticks, QUOTAS_MAX)
    this.#public = new Known(deps.ticks, FUNCTIONS_MAX)
    this.#misses = new Known(deps.ticks, MISSES_MAX)
  }

  /** Whether changes that others make are heard of at once. What happened before it began is not known. */
  set hearing(hearing: boolean) {
    const all = [this.#functions, this.#nodes, this.#quotas, this.#public, this.#misses]
    if (hearing) for (const known of all) known.changedAll()
    this.#hearing = hearing
  }

  nodeChanged(nodeRecordId: string): void {
    this.#nodes.changed(nodeRecordId)
  }

  allNodesChanged(): void {
    this.#nodes.changedAll()
  }

  functionChanged(functionId: string): void {
    this.#functions.changed(functionId)
    this.#public.changed(functionId)
    // It may have a name that was no function's.
    this.#misses.changedAll()
  }

  quotaChanged(orgId: string): void {
    this.#quotas.changed(orgId)
  }

  /** What is known for sure; undefined: read it. */
  known(orgId: string, name: string): KnownFunction | undefined {
    if (!this.#hearing || this.#quotas.sure(orgId) === undefined) return undefined
    const found = this.#functions.sure(keyOf(orgId, name))
    return found?.artifact && found
  }

  /**
   * The function as it is now, its slots and their nodes with it. While the store is away, as it was known last.
   * Rejects with UNAVAILABLE when nothing was.
   */
  async read(orgId: string, name: string): Promise<KnownFunction | undefined> {
    const { clock, db, id, preparer, ticks } = this.#deps
    const last = this.#functions.last(keyOf(orgId, name))
    if (last?.artifact && this.isAway) return last
    const readAt = ticks.now
    try {
      const reading = functionToRun(db, { orgId, name, preparer, engineId: id })
      const found = await (last?.artifact ? this.#patiently(reading) : reading)
      this.#awayUntil = -Infinity
      if (!found) {
        this.#functions.forget(keyOf(orgId, name))
        return undefined
      }
      const { fn, artifact, slots, nodes, invocationsAtOnce } = found
      const known = { fn, artifact, work: workloadOf(fn) }
      this.#functions.learn(keyOf(orgId, name), known, { subject: fn.id, readAt })
      this.#quotas.learn(orgId, invocationsAtOnce, { subject: orgId, readAt })
      this.#learnNodes(nodes, readAt)
      this.#deps.table.learn(slots, { versionId: fn.versionId, readAt, now: clock.monotonic() })
      return known
    } catch (error) {
      this.#noteAway(error)
      if (last?.artifact && this.isAway) return last
      throw error
    }
  }

  /**
   * The id of the org, by id or slug, when it has a function of this name that anybody may invoke. While the store is
   * away, as it was known last; rejects with UNAVAILABLE when nothing was.
   */
  async publicOrg(org: string, name: string): Promise<string | undefined> {
    const key = keyOf(org, name)
    if (this.#hearing) {
      const sure = this.#public.sure(key)
      if (sure !== undefined || this.#misses.sure(key)) return sure
    }
    const last = this.#public.last(key)
    if (last !== undefined && this.isAway) return last
    const readAt = this.#deps.ticks.now
    try {
      const reading = publicFunction(this.#deps.db, { org, name })
      const found = await (last === undefined ? reading : this.#patiently(reading))
      this.#awayUntil = -Infinity
      if (found) this.#public.learn(key, found.orgId, { subject: found.id, readAt })
      else {
        this.#public.forget(key)
        this.#misses.learn(key, true, { subject: key, readAt })
      }
      return found?.orgId
    } catch (error) {
      this.#noteAway(error)
      if (last !== undefined && this.isAway) return last
      throw error
    }
  }

  /** Slots and nodes of a version that is waited for. Rejects with UNAVAILABLE while the store is away. */
  async readSlots({ fn }: KnownFunction): Promise<void> {
    const { clock, db, id, table, ticks } = this.#deps
    const readAt = ticks.now
    const of = { functionId: fn.id, versionId: fn.versionId, engineId: id }
    try {
      const { slots, nodes } = await slotsOfVersion(db, of)
      this.#awayUntil = -Infinity
      this.#learnNodes(nodes, readAt)
      table.learn(slots, { versionId: fn.versionId, readAt, now: clock.monotonic() })
    } catch (error) {
      this.#noteAway(error)
      throw error
    }
  }

  /** Something else read these, from `readAt` on. */
  learnNode(node: PlacementNode, readAt: number): void {
    this.#learnNodes([node], readAt)
  }

  /** Whether the store did not answer a moment ago. */
  get isAway(): boolean {
    return this.#deps.clock.monotonic() < this.#awayUntil
  }

  /** Null while it is not sure: who comes then is let in to read it, and admitted by what was read. */
  sureQuota(orgId: string): number | null {
    return this.#quotas.sure(orgId) ?? null
  }

  /** As read last, told to have changed or not; null: the org has none of its own. */
  quota(orgId: string): number | null {
    return this.#quotas.any(orgId) ?? null
  }

  /** As known last, for its name and its size. */
  node(nodeRecordId: string): PlacementNode | undefined {
    return this.#nodes.any(nodeRecordId)
  }

  /**
   * Whether an invocation may begin in the slot now: its node has a session here and may receive the work (ND-12, PL-2),
   * and nothing of that has changed since it was read, unless there is nobody to ask.
   */
  usable(slot: Slot, work: Workload): boolean {
    const { gateway } = this.#deps
    const { nodeRecordId } = slot.row
    if (gateway.session(nodeRecordId) === undefined) return false
    const node = this.#nodes.last(nodeRecordId)
    if (!node || !admissible(node, work)) return false
    if (this.isAway) return slot.readAt >= this.#nodes.toldAt(nodeRecordId)
    return (
      this.#nodes.sure(nodeRecordId) === node && slot.readAt >= this.#nodes.changedAt(nodeRecordId)
    )
  }

  /** Whether `usable` may be gone by without reading first. */
  get isSure(): boolean {
    return this.#hearing || this.isAway
  }

  /** A store that says nothing at all is as good as away for who can do without. */
  async #patiently<T>(reading: Promise<T>): Promise<T> {
    const silence = Promise.withResolvers<never>()
    const cancel = this.#deps.clock.after(SILENT_AFTER_MS, () => silence.reject(silent()))
    try {
      return await Promise.race([reading, silence.promise])
    } finally {
      cancel()
      reading.catch(() => undefined)
    }
  }

  #learnNodes(nodes: readonly PlacementNode[], readAt: number): void {
    for (const node of nodes) this.#nodes.learn(node.id, node, { subject: node.id, readAt })
  }

  #noteAway(error: unknown): void {
    if (error instanceof AppError && error.details.reason === 'store_unavailable')
      this.#awayUntil = this.#deps.clock.monotonic() + AWAY_FOR_MS
  }
}

const keyOf = (orgId: string, name: string): string => `${orgId} ${name}`

const silent = (): AppError =>
  new AppError('UNAVAILABLE', 'The database does not answer', {
    details: { reason: 'store_unavailable', next: 'Try again in a moment' },
  })

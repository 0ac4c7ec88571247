// The slots that this engine counts, in its memory: which of their units run something.
// 1. A unit runs one invocation at a time. The store's rows say how many units there are; here is who uses them.
// 2. Of one version one change of its rows is under way at a time; what was read meanwhile, or before it, says nothing of
//    that version. So neither a late answer nor an early one makes units out of nothing.
// 3. Units that are `going` are used no more: the row that holds them is being changed.
// 4. A row that was read before its node's last change (its session came, went or moved) is not gone by: see `Catalog`.
import type { SlotRow } from '#store/functions/slots.ts'
import type { Ticks } from '#engine/functions/known.ts'

export type Slot = {
  row: SlotRow
  /** The tick at which the read of the row began. */
  readAt: number
  /** When the engine began to count it; monotonic. */
  since: number
  /** One entry a unit that runs nothing: since when, monotonic, the longest first. */
  idle: number[]
  busy: number
  going: number
}

type Writes = { underWay: number; endedAt: number; last: Promise<unknown> }

/** Versions whose changes are remembered one by one. */
const WRITES_MAX = 10_000

export class SlotTable {
  readonly #ticks: Ticks
  readonly #slots = new Map<string, Slot>()
  readonly #byVersion = new Map<string, Set<Slot>>()
  readonly #byNode = new Map<string, Set<Slot>>()
  readonly #writes = new Map<string, Writes>()
  /** Reads that began earlier say nothing at all. */
  #writtenAt = 0

  constructor(ticks: Ticks) {
    this.#ticks = ticks
  }

  get size(): number {
    return this.#slots.size
  }

  all(): Slot[] {
    return [...this.#slots.values()]
  }

  ofVersion(versionId: string): Iterable<Slot> {
    return this.#byVersion.get(versionId) ?? NONE
  }

  ofNode(nodeRecordId: string): Iterable<Slot> {
    return this.#byNode.get(nodeRecordId) ?? NONE
  }

  unitsOf(versionId: string): number {
    let units = 0
    for (const { row } of this.ofVersion(versionId)) units += row.units
    return units
  }

  /** Every row there is of the version, or of the engine: read from `readAt` on. Answers how many were strangers. */
  learn(rows: readonly SlotRow[], of: { versionId?: string; readAt: number; now: number }): number {
    const stand = new Set(rows.map((row) => row.id))
    const known = of.versionId === undefined ? this.all() : [...this.ofVersion(of.versionId)]
    for (const slot of known)
      if (!stand.has(slot.row.id) && this.#isTold(slot.row.versionId, of.readAt)) this.forget(slot)
    let strangers = 0
    for (const row of rows) {
      if (!this.#isTold(row.versionId, of.readAt)) continue
      if (!this.#slots.has(row.id)) strangers++
      this.set(row, of)
    }
    return strangers
  }

  /** The row as it is for sure. */
  set(row: SlotRow, of: { readAt: number; now: number }): Slot {
    const slot = this.#slots.get(row.id) ?? this.#add(row, of.now)
    if (of.readAt < slot.readAt) return slot
    slot.row = row
    slot.readAt = of.readAt
    const idle = Math.max(0, row.units - slot.busy - slot.going)
    if (idle < slot.idle.length) slot.idle.splice(0, slot.idle.length - idle)
    while (slot.idle.length < idle) slot.idle.push(of.now)
    return slot
  }

  forget(slot: Slot): void {
    this.#slots.delete(slot.row.id)
    slot.idle.length = 0
    remove(this.#byVersion, slot.row.versionId, slot)
    remove(this.#byNode, slot.row.nodeRecordId, slot)
  }

  /** Takes the unit that was used last: the others may fall idle for good. */
  take(slot: Slot): void {
    slot.idle.pop()
    slot.busy++
  }

  /** Whether a unit is idle now: not if the row has become smaller meanwhile. */
  free(slot: Slot, now: number): boolean {
    slot.busy--
    if (this.#slots.get(slot.row.id) !== slot) return false
    if (slot.busy + slot.going + slot.idle.length >= slot.row.units) return false
    slot.idle.push(now)
    return true
  }

  /** Changes rows of these versions: after the changes that are under way, before those that come. */
  async writing<T>(versionIds: Iterable<string>, work: () => Promise<T>): Promise<T> {
    const all = [...new Set(versionIds)].map((id) => this.#writesOf(id))
    const before = all.map(({ last }) => last)
    const mine = Promise.allSettled(before).then(work)
    for (const writes of all) {
      writes.underWay++
      writes.last = mine
    }
    try {
      return await mine
    } finally {
      for (const writes of all) {
        writes.underWay--
        writes.endedAt = this.#ticks.next()
      }
    }
  }

  #isTold(versionId: string, readAt: number): boolean {
    const writes = this.#writes.get(versionId)
    if (readAt < this.#writtenAt) return false
    return !writes || (writes.underWay === 0 && writes.endedAt <= readAt)
  }

  #writesOf(versionId: string): Writes {
    const known = this.#writes.get(versionId)
    if (known) return known
    if (this.#writes.size >= WRITES_MAX) {
      for (const [id, { underWay }] of this.#writes) if (underWay === 0) this.#writes.delete(id)
      this.#writtenAt = this.#ticks.next()
    }
    const writes = { underWay: 0, endedAt: 0, last: Promise.resolve() }
    this.#writes.set(versionId, writes)
    return writes
  }

  #add(row: SlotRow, since: number): Slot {
    const slot: Slot = { row, readAt: 0, since, idle: [], busy: 0, going: 0 }
    this.#slots.set(row.id, slot)
    add(this.#byVersion, row.versionId, slot)
    add(this.#byNode, row.nodeRecordId, slot)
    return slot
  }
}

const NONE: readonly Slot[] = []

function add(index: Map<string, Set<Slot>>, key: string, slot: Slot): void {
  const mates = index.get(key) ?? new Set()
  index.set(key, mates.add(slot))
}

function remove(index: Map<string, Set<Slot>>, key: string, slot: Slot): void {
  const mates = index.get(key)
  mates?.delete(slot)
  if (mates?.size === 0) index.delete(key)
}

// The slots that this engine counts, in its memory.
// 1. A slot runs one invocation at a time; the store's rows are the truth, and a slot is handed out only if a row that
//    was read a moment ago names it. So one that was revoked or moved to another engine is never used again.
// 2. `releasing` slots are handed out no more; their row is being deleted.
import type { SlotRow } from '#store/slots.ts'

export type SlotState = 'idle' | 'busy' | 'releasing'

export type Slot = {
  row: SlotRow
  state: SlotState
  /** Monotonic; since when it has been in its state. */
  since: number
}

export class SlotTable {
  readonly #slots = new Map<string, Slot>()
  readonly #byVersion = new Map<string, Set<Slot>>()

  get size(): number {
    return this.#slots.size
  }

  has(id: string): boolean {
    return this.#slots.has(id)
  }

  all(): Slot[] {
    return [...this.#slots.values()]
  }

  /** The slot of this row; one that is known already stays as it is. */
  add(row: SlotRow, now: number): Slot {
    const known = this.#slots.get(row.id)
    if (known) return known
    const slot: Slot = { row, state: 'idle', since: now }
    this.#slots.set(row.id, slot)
    const mates = this.#byVersion.get(row.versionId) ?? new Set()
    this.#byVersion.set(row.versionId, mates.add(slot))
    return slot
  }

  remove(slot: Slot): void {
    this.#slots.delete(slot.row.id)
    const mates = this.#byVersion.get(slot.row.versionId)
    mates?.delete(slot)
    if (mates?.size === 0) this.#byVersion.delete(slot.row.versionId)
  }

  /** Our slots among freshly read rows, the tier brought up to date. */
  among(rows: readonly SlotRow[]): Slot[] {
    return rows.flatMap((row) => {
      const slot = this.#slots.get(row.id)
      if (!slot || slot.state === 'releasing') return []
      slot.row = row
      return [slot]
    })
  }

  /** Takes the idle slot that was used last: the others may fall idle for good. */
  take(from: readonly Slot[], now: number): Slot | undefined {
    let best: Slot | undefined
    for (const slot of from)
      if (slot.state === 'idle' && (!best || slot.since > best.since)) best = slot
    if (best) this.#enter(best, 'busy', now)
    return best
  }

  free(slot: Slot, now: number): void {
    this.#enter(slot, 'idle', now)
  }

  /** Idle slots of the function whose version is another than `current`. */
  superseded(functionId: string, current: string | undefined): Slot[] {
    return this.all().filter(
      ({ row, state }) =>
        state === 'idle' && row.functionId === functionId && row.versionId !== current,
    )
  }

  idleSince(before: number): Slot[] {
    return this.all().filter((slot) => slot.state === 'idle' && slot.since <= before)
  }

  #enter(slot: Slot, state: SlotState, now: number): void {
    slot.state = state
    slot.since = now
  }
}

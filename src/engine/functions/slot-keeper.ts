// The durable side of the slots: booking units, giving them back, and keeping rows and memory the same.
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import type { Store } from '#store/connect.ts'
import { adoptSlots, releaseUnits } from '#store/functions/slots.ts'
import type { Catalog, KnownFunction } from '#engine/functions/catalog.ts'
import type { Ticks } from '#engine/functions/known.ts'
import type { Place, Placer } from '#engine/functions/placer.ts'
import type { Slot, SlotTable } from '#engine/functions/slot-table.ts'

export type KeeperDeps = {
  id: string
  db: Store
  clock: Clock
  log: Logger
  ticks: Ticks
  table: SlotTable
  catalog: Catalog
  placer: Placer
  /** Units were given back on these nodes. */
  freed(nodeRecordIds: Iterable<string>): void
}

export type Given = { slot: Slot; units: number }

export class SlotKeeper {
  readonly #deps: KeeperDeps

  constructor(deps: KeeperDeps) {
    this.#deps = deps
  }

  /** Books units for the version; false when no node has room for one. */
  async grow(known: KnownFunction, place: Place): Promise<boolean> {
    const { catalog, clock, placer, table, ticks } = this.#deps
    return table.writing([known.fn.versionId], async () => {
      const readAt = ticks.now
      const placed = await placer.place(known, place)
      if (!placed) return false
      catalog.learnNode(placed.node, readAt)
      table.set(placed.row, { readAt, now: clock.monotonic() })
      return true
    })
  }

  /** Gives idle units back, the longest idle first; what cannot be now stays. Answers how many went. */
  async giveBack(given: readonly Given[]): Promise<number> {
    const going = given.flatMap(({ slot, units }) => {
      const taken = slot.idle.splice(0, units)
      slot.going += taken.length
      return taken.length > 0 ? [{ slot, taken }] : []
    })
    let released = 0
    const freed = new Set<string>()
    const nodes = Map.groupBy(going, ({ slot }) => slot.row.nodeRecordId)
    try {
      for (const [nodeRecordId, mine] of nodes) {
        const count = await this.#release(nodeRecordId, mine)
        nodes.delete(nodeRecordId)
        if (count > 0) freed.add(nodeRecordId)
        released += count
      }
    } finally {
      // The store refused: the next pass reads what became of them.
      for (const mine of nodes.values())
        for (const { slot, taken } of mine) {
          slot.going -= taken.length
          slot.idle.unshift(...taken)
        }
      if (freed.size > 0) this.#deps.freed(freed)
    }
    return released
  }

  giveBackSoon(given: readonly Given[]): void {
    this.giveBack(given).catch((error: unknown) =>
      this.#deps.log.warn(
        { err: error },
        'slots could not be given back; the next pass tries again',
      ),
    )
  }

  /**
   * Takes over the slots of nodes that dialled this engine and those of a former self, and forgets what is no longer ours.
   * Then gives back what was idle for `idleMs` or belongs to no current version.
   */
  async tidy(idleMs: number): Promise<{ slots: number; adopted: number; released: number }> {
    const { clock, db, id, table, ticks } = this.#deps
    const readAt = ticks.now
    const rows = await adoptSlots(db, id)
    const adopted = table.learn(rows, { readAt, now: clock.monotonic() })
    const before = clock.monotonic() - idleMs
    const idle = table.all().map((slot) => ({
      slot,
      units: slot.row.current
        ? slot.idle.filter((since) => since <= before).length
        : slot.idle.length,
    }))
    const released = await this.giveBack(idle)
    return { slots: table.size, adopted, released }
  }

  async #release(
    nodeRecordId: string,
    mine: readonly { slot: Slot; taken: number[] }[],
  ): Promise<number> {
    const { db, id: engineId, table } = this.#deps
    return table.writing(
      mine.map(({ slot }) => slot.row.versionId),
      async () => {
        const slots = mine.map(({ slot, taken }) => ({ id: slot.row.id, units: taken.length }))
        const gone = await releaseUnits(db, { nodeRecordId, engineId, slots })
        const units = new Map(gone.map((one) => [one.id, one.units]))
        let count = 0
        for (const { slot, taken } of mine) {
          const went = units.get(slot.row.id)
          slot.going -= taken.length
          count += went ?? 0
          // Not ours any more, or changed by somebody: the next read says what it is.
          if (went === undefined || went >= slot.row.units) table.forget(slot)
          else slot.row = { ...slot.row, units: slot.row.units - went }
        }
        return count
      },
    )
  }
}

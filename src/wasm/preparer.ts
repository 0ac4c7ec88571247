// Prepares components in children that one jail holds. It is opened at the first preparation, for most engines never
// prepare, and stays open.
import type { Clock } from '#lib/clock.ts'
import type { Jail, Note } from '#wasm/jail/jail.ts'
import { openJail } from '#wasm/jail/open-jail.ts'
import { prepare, type PrepareOptions, type PrepareOutcome, preparerView } from '#wasm/prepare.ts'

export type PreparerDeps = {
  clock: Clock
  /** Path of the Node binary. */
  node: string
  /** What the jail lacks here, once it is known. */
  onOpen: (notes: readonly Note[]) => void
}

export class Preparer {
  readonly #deps: PreparerDeps
  #jail: Promise<Jail> | undefined

  constructor(deps: PreparerDeps) {
    this.#deps = deps
  }

  /** As `prepare`: every refusal is an outcome. */
  async prepare(
    bytes: Uint8Array,
    options: Omit<PrepareOptions, 'jail' | 'node' | 'clock'>,
  ): Promise<PrepareOutcome> {
    const { clock, node } = this.#deps
    const jail = await (this.#jail ??= this.#open())
    return prepare(bytes, { ...options, clock, node, jail })
  }

  /** Gives the jail back. Preparations have ended before. */
  async close(): Promise<void> {
    const jail = await this.#jail
    jail?.close()
  }

  async #open(): Promise<Jail> {
    const { clock, node, onOpen } = this.#deps
    try {
      const jail = await openJail({ clock, node, ...preparerView() })
      onOpen(jail.notes)
      return jail
    } catch (error) {
      // The next preparation tries again: what failed (descriptors, memory) may be over.
      this.#jail = undefined
      throw error
    }
  }
}

// Says yes at most once a while for each name: what a stranger can cause again and again is told once.
import type { Clock } from '#lib/clock.ts'

/** Names remembered; beyond it the oldest is forgotten, and may be told again sooner. */
const NAMES_MAX = 10_000

export class Rarely {
  readonly #clock: Clock
  readonly #everyMs: number
  /** Monotonic time of the last yes, the oldest first. */
  readonly #last = new Map<string, number>()

  constructor(clock: Clock, everyMs: number) {
    this.#clock = clock
    this.#everyMs = everyMs
  }

  tell(name: string): boolean {
    const now = this.#clock.monotonic()
    const last = this.#last.get(name)
    if (last !== undefined && now - last < this.#everyMs) return false
    this.#last.delete(name)
    this.#last.set(name, now)
    const oldest = this.#last.size > NAMES_MAX ? this.#last.keys().next().value : undefined
    if (oldest !== undefined) this.#last.delete(oldest)
    return true
  }
}

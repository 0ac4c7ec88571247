// How much may be on the way to the peer: as much as it takes in PIPE_DELAY_MS, between two bounds. On a slow link a
// small frame then queues behind little, and on a fast one bulk does not wait for credit.
import type { Clock } from '#lib/clock.ts'

/** Data of all streams on the way at once, at least: a second at 8 Mbit/s, and what the peer must take unasked. */
export const PIPE_WINDOW = 1024 * 1024
/** At most: 160 MB/s at PIPE_DELAY_MS, about what one QUIC connection carries. */
export const PIPE_WINDOW_MAX = 4 * 1024 * 1024
const PIPE_DELAY_MS = 25

export class Pace {
  readonly #clock: Clock
  #since: number
  #bytes = 0
  #window = PIPE_WINDOW

  constructor(clock: Clock) {
    this.#clock = clock
    this.#since = clock.monotonic()
  }

  get window(): number {
    return this.#window
  }

  /** The peer has credited this much. */
  delivered(bytes: number): void {
    this.#bytes += bytes
    const ms = this.#clock.monotonic() - this.#since
    if (ms < PIPE_DELAY_MS) return
    const fair = (this.#bytes / ms) * PIPE_DELAY_MS
    const next = (this.#window + fair) / 2 // a pause or a burst moves it half the way
    this.#window = Math.min(PIPE_WINDOW_MAX, Math.max(PIPE_WINDOW, next))
    this.#bytes = 0
    this.#since += ms
  }
}

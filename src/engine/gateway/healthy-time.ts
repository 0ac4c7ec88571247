// The engine's own healthy time (ND-17, D18): silence counts only while the engine itself was able to listen.
//
// Invariants
// 1. It grows by ticks of its loop; a tick that comes late (a stall, SIGSTOP, a laptop asleep) counts as LATE_MAX.
// 2. It never runs ahead of the monotonic clock.
import type { Clock } from '#lib/clock.ts'

/** A tick that is up to this many times late is load, and counts; beyond it the engine was not there. */
const LATE_MAX = 2

export class HealthyTime {
  readonly #clock: Clock
  readonly #tickMs: number
  #last: number
  #ms = 0

  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock
    this.#tickMs = tickMs
    this.#last = clock.monotonic()
  }

  /** Call once a tick. */
  tick(): void {
    const now = this.#clock.monotonic()
    this.#ms += Math.min(now - this.#last, LATE_MAX * this.#tickMs)
    this.#last = now
  }

  /** Milliseconds of healthy time; moves only with `tick`. */
  now(): number {
    return this.#ms
  }
}

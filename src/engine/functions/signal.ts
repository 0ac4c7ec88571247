// Waking whoever waits for a change that may come at any time. A missed change costs a poll's delay, never more.
import type { Clock } from '#lib/clock.ts'

export class Signal {
  readonly #clock: Clock
  readonly #waiting = new Set<() => void>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  fire(): void {
    for (const resolve of this.#waiting) resolve()
  }

  /** Resolves at the next `fire`, or after `ms`. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        cancel()
        this.#waiting.delete(done)
        resolve()
      }
      const cancel = this.#clock.after(ms, done)
      this.#waiting.add(done)
    })
  }
}

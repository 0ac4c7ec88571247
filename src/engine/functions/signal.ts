// Waking whoever waits for a change that may come at any time. A missed change costs a poll's delay, never more.
import type { Clock } from '#lib/clock.ts'

export class Signal {
  readonly #clock: Clock
  #waiting: (() => void)[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  fire(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve()
  }

  /** Resolves at the next `fire`, or after `ms`. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(ms, resolve)
      this.#waiting.push(() => (cancel(), resolve()))
    })
  }
}

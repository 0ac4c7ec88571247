// A clock that stands still until it is told to move: for tests and for the simulator.
import type { Clock, Instant } from '#lib/clock.ts'

type Timer = { at: number; order: number; fn: () => void }

export type FakeClock = Clock & {
  /** Moves time on, firing what falls due in order; yields to promises between timers. */
  advance(ms: number): Promise<void>
  /** How many timers wait. */
  pending(): number
}

/** `start` is wall time in ms; monotonic time starts at 0. */
export function fakeClock(start: Instant = Date.UTC(2026, 0, 1)): FakeClock {
  let elapsed = 0
  let order = 0
  const timers = new Set<Timer>()
  const after = (ms: number, fn: () => void): (() => void) => {
    const timer = { at: elapsed + ms, order: order++, fn }
    timers.add(timer)
    return () => void timers.delete(timer)
  }
  const due = (until: number): Timer | undefined =>
    [...timers].filter((t) => t.at <= until).toSorted((a, b) => a.at - b.at || a.order - b.order)[0]
  const settle = (): Promise<void> => new Promise((done) => setImmediate(done))
  return {
    now: () => start + elapsed,
    monotonic: () => elapsed,
    after,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const cancel = after(ms, resolve)
        signal?.addEventListener('abort', () => (cancel(), reject(signal.reason)), { once: true })
      }),
    async advance(ms) {
      const until = elapsed + ms
      await settle()
      for (let timer = due(until); timer; timer = due(until)) {
        elapsed = timer.at
        timers.delete(timer)
        timer.fn()
        await settle()
      }
      elapsed = until
    },
    pending: () => timers.size,
  }
}

// Time is an argument (rule 3): nothing outside lib and bin reads it from the air.

/** Milliseconds since the epoch, UTC. */
export type Instant = number
/** Ends a timer; safe to call twice. */
export type Cancel = () => void

export type Clock = {
  /** Wall time, for what people read and what expires by date. */
  now(): Instant
  /** Milliseconds that only grow: for durations, deadlines and leases. */
  monotonic(): number
  /** Calls `fn` once after `ms`. The timer does not keep the process alive. */
  after(ms: number, fn: () => void): Cancel
  /** Resolves after `ms`; rejects with the signal's reason when aborted. Keeps the process alive. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms)
    timer.unref()
    return () => clearTimeout(timer)
  },
  sleep(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const onAbort = (): void => {
        clearTimeout(timer)
        reject(signal?.reason)
      }
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      }, ms)
      signal?.addEventListener('abort', onAbort, { once: true })
    })
  },
}

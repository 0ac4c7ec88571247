// Waiting by asking: for tests, benches and whoever watches programs from outside. Parts of a program are told instead.
import { systemClock } from '#lib/clock.ts'

const POLL_MS = 10

/**
 * Asks until the answer is neither undefined nor false, and answers it. An error of `ask` is one more "not yet". Rejects
 * with `what` after `withinMs`, and with the last error as its cause.
 */
export async function until<T>(
  what: string | (() => string),
  ask: () => Promise<T | undefined> | T | undefined,
  withinMs = 20_000,
): Promise<T> {
  const deadline = systemClock.monotonic() + withinMs
  for (;;) {
    let last: unknown
    try {
      const answer = await ask()
      if (answer !== undefined && answer !== false) return answer
    } catch (error) {
      last = error
    }
    if (systemClock.monotonic() > deadline) {
      const text = typeof what === 'string' ? what : what()
      throw new Error(`not within ${withinMs} ms: ${text}`, { cause: last })
    }
    await systemClock.sleep(POLL_MS)
  }
}

import type { Random } from '#lib/random.ts'

/** Full jitter: uniform in [0, min(capMs, baseMs · 2^attempt)], attempt counting from 0. */
export function backoffMs(
  attempt: number,
  limits: { baseMs: number; capMs: number },
  random: Random,
): number {
  return random.float() * Math.min(limits.capMs, limits.baseMs * 2 ** Math.min(attempt, 30))
}

// How often an org may call what is dear, and an address try to join (AC-3): one bucket of tokens each, in this engine's
// memory.
// A bucket holds a minute's worth and refills evenly: a burst passes, a flood does not. N engines allow N times as much.
import type { Meta } from '#api/base.ts'
import type { Clock } from '#lib/clock.ts'

/** `sign-in` counts addresses, the others orgs. */
export type LimitName = NonNullable<Meta['limit']> | 'sign-in'

/** Calls a minute of one org or address. */
export type Limits = Record<LimitName, number>

/** Full buckets say nothing: past this many, they are forgotten. */
const BUCKETS_MAX = 10_000
const MINUTE_MS = 60_000

export class RateLimit {
  readonly #limits: Limits
  readonly #clock: Clock
  readonly #buckets = new Map<string, { tokens: number; at: number }>()

  constructor(limits: Limits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
  }

  /** Undefined when the call may go on; otherwise how long until it could, in ms. */
  take(limit: LimitName, of: string): number | undefined {
    const most = this.#limits[limit]
    const now = this.#clock.monotonic()
    const key = `${limit} ${of}`
    const bucket = this.#buckets.get(key) ?? { tokens: most, at: now }
    const tokens = Math.min(most, bucket.tokens + ((now - bucket.at) * most) / MINUTE_MS)
    if (tokens < 1) return Math.ceil(((1 - tokens) * MINUTE_MS) / most)
    if (this.#buckets.size >= BUCKETS_MAX) this.#forgetFull(now)
    this.#buckets.set(key, { tokens: tokens - 1, at: now })
    return undefined
  }

  #forgetFull(now: number): void {
    for (const [key, { at }] of this.#buckets) if (now - at >= MINUTE_MS) this.#buckets.delete(key)
  }
}

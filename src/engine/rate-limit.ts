// How often an org may call what is dear, and an address try to join or call as a stranger (AC-3): one bucket of tokens each, in this engine's
// memory.
// A bucket holds a minute's worth and refills evenly: a burst passes, a flood does not. N engines allow N times as much.
import type { Meta } from '#api/base.ts'
import type { Clock } from '#lib/clock.ts'

/** Of an address, not of an org. */
export type AddressLimit = 'sign-in' | 'public-invoke'
export type LimitName = NonNullable<Meta['limit']> | AddressLimit

/** Calls a minute of one org or address. */
export type Limits = Record<LimitName, number>

const MINUTE_MS = 60_000
/** Some hundred bytes each. A flood of addresses turns the generations sooner, which only forgives. */
const BUCKETS_MAX = 50_000
/** Sums of fractions are not exact. */
const EPSILON_MS = 1e-6

export class RateLimit {
  readonly #buckets: Readonly<Record<LimitName, Buckets>>
  readonly #clock: Clock

  constructor(limits: Limits, clock: Clock) {
    this.#clock = clock
    this.#buckets = {
      enroll: new Buckets(limits.enroll),
      deploy: new Buckets(limits.deploy),
      invoke: new Buckets(limits.invoke),
      'public-invoke': new Buckets(limits['public-invoke']),
      'sign-in': new Buckets(limits['sign-in']),
    }
  }

  /** Undefined when the call may go on; otherwise how long until it could, in ms. */
  take(limit: LimitName, of: string): number | undefined {
    return this.#buckets[limit].take(of, this.#clock.monotonic())
  }
}

/**
 * The buckets of one limit. Kept of each is the moment when it would be full again (GCRA: the theoretical arrival time).
 * One that nobody touched for a minute is full and need not be kept: two generations, turned every minute.
 */
class Buckets {
  readonly #intervalMs: number
  #young = new Map<string, number>()
  #old = new Map<string, number>()
  #turnedAt = 0

  constructor(perMinute: number) {
    this.#intervalMs = MINUTE_MS / perMinute
  }

  take(of: string, now: number): number | undefined {
    const full = Math.max(now, this.#young.get(of) ?? this.#old.get(of) ?? now)
    const waitMs = full - now - (MINUTE_MS - this.#intervalMs)
    if (waitMs > EPSILON_MS) return Math.ceil(waitMs - EPSILON_MS)
    if (now - this.#turnedAt >= MINUTE_MS || this.#young.size >= BUCKETS_MAX) this.#turn(now)
    this.#young.set(of, full + this.#intervalMs)
    return undefined
  }

  #turn(now: number): void {
    // After two quiet minutes the young are as full as the old.
    this.#old = now - this.#turnedAt >= 2 * MINUTE_MS ? new Map() : this.#young
    this.#young = new Map()
    this.#turnedAt = now
  }
}

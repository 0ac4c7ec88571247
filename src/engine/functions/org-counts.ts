// AC-6: how many invocations of an org are under way or wait at this engine, and how many may be.
import { INVOCATIONS_AT_ONCE } from '#core/function/limits.ts'
import { AppError } from '#lib/error.ts'

/** An invocation that waits or runs in an org's stead ends in seconds. */
const RETRY_AFTER_MS = 1_000

export class OrgCounts {
  readonly #counts = new Map<string, number>()

  of(orgId: string): number {
    return this.#counts.get(orgId) ?? 0
  }

  /** Counts one more; `leave` must follow. */
  enter(orgId: string): void {
    this.#counts.set(orgId, this.of(orgId) + 1)
  }

  leave(orgId: string): void {
    const left = this.of(orgId) - 1
    if (left > 0) this.#counts.set(orgId, left)
    else this.#counts.delete(orgId)
  }

  /** Refuses the one that was counted last if it is one too many; `quota` null: the engine's default. */
  check(orgId: string, quota: number | null): void {
    const limit = quota ?? INVOCATIONS_AT_ONCE
    const used = this.of(orgId) - 1
    if (used < limit) return
    throw new AppError(
      'QUOTA_EXCEEDED',
      `${used} invocations of this organization are under way or wait at this engine; its limit is ${limit} at once`,
      {
        details: {
          reason: 'INVOCATIONS_AT_ONCE',
          limit,
          used,
          retryAfterMs: RETRY_AFTER_MS,
          next: 'Wait for some to end, or ask a platform operator to raise the limit with `ccp quotas set`',
        },
      },
    )
  }
}

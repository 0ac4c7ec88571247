// AC-6: how many invocations of an org are under way or wait at this engine, and how many may be.
// 1. An invocation enters before anything is read for it, by the quota that is known for sure, and is admitted by the quota
//    that was read: so neither a flood of reads nor a quota that nobody remembers lets too many in.
// 2. Only those that are admitted count against those that come after the read: who is refused takes nobody's place.
import { INVOCATIONS_AT_ONCE } from '#core/function/limits.ts'
import { AppError } from '#lib/error.ts'

/** Invocations end in seconds. */
const RETRY_AFTER_MS = 1_000

type Count = { entered: number; admitted: number }

/** What an invocation holds of its org's count. */
export type Entry = { admitted: boolean }

export class OrgCounts {
  readonly #counts = new Map<string, Count>()

  /** `quota` null: the engine's default. Throws QUOTA_EXCEEDED; else `leave` must follow. */
  enter(orgId: string, quota: number | null): Entry {
    const count = this.#counts.get(orgId) ?? { entered: 0, admitted: 0 }
    refuseAbove(count.entered, quota)
    count.entered++
    this.#counts.set(orgId, count)
    return { admitted: false }
  }

  admit(orgId: string, entry: Entry, quota: number | null): void {
    const count = this.#counts.get(orgId)
    if (!count) throw new Error('invariant broken: nobody entered')
    refuseAbove(count.admitted, quota)
    count.admitted++
    entry.admitted = true
  }

  leave(orgId: string, entry: Entry): void {
    const count = this.#counts.get(orgId)
    if (!count) return
    count.entered--
    if (entry.admitted) count.admitted--
    if (count.entered === 0) this.#counts.delete(orgId)
  }
}

function refuseAbove(used: number, quota: number | null): void {
  const limit = quota ?? INVOCATIONS_AT_ONCE
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
        next: 'Wait for some to end, or ask a platform operator to raise the limit (`ccp quotas set`)',
      },
    },
  )
}

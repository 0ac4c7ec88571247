// Who prepares when. A preparation may take a core for a minute, and whoever deploys decides how long.
// 1. RUNNING_MAX at once, one of an org: no org can take every place.
// 2. WAITING_MAX wait, WAITING_OF_ORG_MAX of an org; they are served in their order, passing over those whose org has
//    its place. Beyond that callers hear UNAVAILABLE and when to come back.
import { AppError } from '#lib/error.ts'

/** A preparation keeps one core busy and may take a gigabyte. */
const RUNNING_MAX = 2
/** Those that came inline hold their bytes while they wait: with FN-1's 8 MiB this is 128 MiB. */
export const WAITING_MAX = 16
export const WAITING_OF_ORG_MAX = 8
/** About what one preparation takes: a place in the line is free by then. */
const RETRY_AFTER_MS = 2_000

type Waiter = { orgId: string; go: () => void }

export class PreparingLine {
  readonly #running = new Set<string>()
  readonly #waiting: Waiter[] = []

  /** Does `work` when its org's turn has come. Rejects with UNAVAILABLE when the line is full. */
  async inTurn<T>(orgId: string, work: () => Promise<T>): Promise<T> {
    await this.#turn(orgId)
    try {
      return await work()
    } finally {
      this.#running.delete(orgId)
      this.#next()
    }
  }

  #isFree(orgId: string): boolean {
    return this.#running.size < RUNNING_MAX && !this.#running.has(orgId)
  }

  async #turn(orgId: string): Promise<void> {
    if (this.#isFree(orgId)) {
      this.#running.add(orgId)
      return
    }
    const mine = this.#waiting.filter((one) => one.orgId === orgId).length
    if (mine >= WAITING_OF_ORG_MAX) throw full(`${1 + mine} components of this organization`)
    if (this.#waiting.length >= WAITING_MAX) throw full(`${RUNNING_MAX + WAITING_MAX} components`)
    await new Promise<void>((go) => this.#waiting.push({ orgId, go }))
  }

  #next(): void {
    const at = this.#waiting.findIndex(({ orgId }) => this.#isFree(orgId))
    const [next] = at < 0 ? [] : this.#waiting.splice(at, 1)
    if (!next) return
    this.#running.add(next.orgId)
    next.go()
  }
}

const full = (what: string): AppError =>
  new AppError('UNAVAILABLE', `${what} are being prepared`, {
    details: {
      reason: 'PREPARING_FULL',
      retryAfterMs: RETRY_AFTER_MS,
      next: 'Deploy again in a few seconds',
    },
  })

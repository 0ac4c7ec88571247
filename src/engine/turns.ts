// Who goes when, by organization, where each turn is work that a caller makes as long as they like.
// 1. `places` at once, one of an org: no org can take every place.
// 2. Who waits is served in the order they came, passing over those whose org has its place.
// 3. When as many wait as may, and whose patience is over, hears `full` and when to come back.
import type { Clock } from '#lib/clock.ts'
import type { AppError } from '#lib/error.ts'

export type TurnsSpec = {
  places: number
  waiting: number
  waitingOfOrg: number
  /** What those hear who have no place and may not wait; of so many, and whether they are all of their own org. */
  full: (count: number, own: boolean) => AppError
}

/** How long somebody waits, and the signal that they left. */
export type Patience = { clock: Clock; ms: number; gone: AbortSignal }

type Waiter = { orgId: string; go(): void }

export class Turns {
  readonly #spec: TurnsSpec
  readonly #running = new Set<string>()
  #waiting: Waiter[] = []

  constructor(spec: TurnsSpec) {
    this.#spec = spec
  }

  /**
   * Does `work` when its org's turn has come; without `patience` whoever may wait waits until then. Rejects with `full`,
   * or the signal's reason, before it began.
   */
  async inTurn<T>(orgId: string, work: () => Promise<T>, patience?: Patience): Promise<T> {
    patience?.gone.throwIfAborted()
    if (this.#isFree(orgId)) this.#running.add(orgId)
    else await this.#turn(orgId, patience)
    try {
      return await work()
    } finally {
      this.#running.delete(orgId)
      this.#next()
    }
  }

  #isFree(orgId: string): boolean {
    return this.#running.size < this.#spec.places && !this.#running.has(orgId)
  }

  async #turn(orgId: string, patience: Patience | undefined): Promise<void> {
    const { places, waiting, waitingOfOrg, full } = this.#spec
    const mine = this.#waiting.filter((one) => one.orgId === orgId).length
    if (mine >= waitingOfOrg) throw full(1 + mine, true)
    if (this.#waiting.length >= waiting) throw full(places + waiting, false)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const waiter = { orgId, go: resolve }
    this.#waiting.push(waiter)
    const leave = (why: unknown): void => {
      this.#waiting = this.#waiting.filter((one) => one !== waiter)
      reject(why)
    }
    const onGone = (): void => leave(patience?.gone.reason)
    patience?.gone.addEventListener('abort', onGone, { once: true })
    const cancel = patience?.clock.after(patience.ms, () =>
      leave(full(1 + this.#waiting.length, false)),
    )
    try {
      await promise
    } finally {
      cancel?.()
      patience?.gone.removeEventListener('abort', onGone)
    }
  }

  #next(): void {
    const next = this.#waiting.find(({ orgId }) => this.#isFree(orgId))
    if (!next) return
    this.#waiting = this.#waiting.filter((one) => one !== next)
    // Before the waiter runs: whoever comes meanwhile finds the place taken.
    this.#running.add(next.orgId)
    next.go()
  }
}

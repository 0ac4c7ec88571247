// Who uploads when (FN-1): each upload is a disk's and a connection's work for as long as its client likes.
// 1. UPLOADS_AT_ONCE at once. The next place is for an org that has none, in the order they came, then for the others.
// 2. Who waits is not read. Beyond UPLOAD_WAIT_MS, or when as many wait as may, they hear UNAVAILABLE and when to come
//    back.
import { UPLOADS_AT_ONCE } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'

/** As long as other large bodies wait: a proxy's patience is longer. */
export const UPLOAD_WAIT_MS = 10_000
/** Connections that wait; each costs its socket. */
const WAITING_MAX = 64
export const UPLOADS_WAITING_OF_ORG_MAX = 16
/** 8 MiB on a line of 10 Mbit/s. */
const RETRY_AFTER_MS = 7_000

type Waiter = { orgId: string; go(): void }

export class UploadTurns {
  readonly #running: string[] = []
  #waiting: Waiter[] = []

  /** Resolves with the way to give the place back, once. Rejects with UNAVAILABLE, or the signal's reason. */
  async take(orgId: string, { clock, gone }: { clock: Clock; gone: AbortSignal }) {
    gone.throwIfAborted()
    if (this.#running.length >= UPLOADS_AT_ONCE) await this.#turn(orgId, { clock, gone })
    else this.#running.push(orgId)
    let given = false
    return () => {
      if (given) return
      given = true
      this.#running.splice(this.#running.indexOf(orgId), 1)
      this.#next()
    }
  }

  async #turn(orgId: string, { clock, gone }: { clock: Clock; gone: AbortSignal }): Promise<void> {
    const mine = this.#waiting.filter((one) => one.orgId === orgId).length
    if (mine >= UPLOADS_WAITING_OF_ORG_MAX || this.#waiting.length >= WAITING_MAX) throw full()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const waiter = { orgId, go: resolve }
    const leave = (why: unknown): void => {
      this.#waiting = this.#waiting.filter((one) => one !== waiter)
      reject(why)
    }
    const onGone = (): void => leave(gone.reason)
    this.#waiting.push(waiter)
    gone.addEventListener('abort', onGone, { once: true })
    const cancel = clock.after(UPLOAD_WAIT_MS, () => leave(full()))
    try {
      await promise
    } finally {
      cancel()
      gone.removeEventListener('abort', onGone)
    }
  }

  #next(): void {
    const next =
      this.#waiting.find(({ orgId }) => !this.#running.includes(orgId)) ?? this.#waiting[0]
    if (!next) return
    this.#waiting = this.#waiting.filter((one) => one !== next)
    // Before the waiter runs: whoever comes meanwhile finds the place taken.
    this.#running.push(next.orgId)
    next.go()
  }
}

const full = (): AppError =>
  new AppError('UNAVAILABLE', `${UPLOADS_AT_ONCE} components are being uploaded`, {
    details: {
      reason: 'UPLOADS_FULL',
      retryAfterMs: RETRY_AFTER_MS,
      next: 'Send it again in a few seconds',
    },
  })

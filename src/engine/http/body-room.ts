// Room for big bodies. Each is held whole while its call runs, several times over while it is parsed; without a bound
// one tenant's parallel calls take the engine's memory from everybody.
// 1. A small body needs no room. A big one is read only once its caller is known and its bytes have room.
// 2. What has no room waits its turn, unread: the connection holds it back. A caller at its own bound holds up no other.
// 3. A caller has at most half, so that one alone never keeps the rest out.
import { AppError } from '#lib/error.ts'
import type { Clock } from '#lib/clock.ts'

/** Bytes of big bodies held at once; parsing holds about four times that. */
const BODIES_BYTES_MAX = 192 * 1024 * 1024
/** How long a body waits to be read: a proxy's patience is longer. */
export const BODY_WAIT_MS = 10_000
/** Connections that wait to be read; each costs its socket. */
const BODIES_WAITING_MAX = 1_000

type Waiter = { holder: string; bytes: number; go(): void }

export class BodyRoom {
  readonly #max: number
  readonly #held = new Map<string, number>()
  #taken = 0
  readonly #waiting = new Set<Waiter>()

  constructor(max: number = BODIES_BYTES_MAX) {
    this.#max = max
  }

  /** Bytes held now, and bodies that wait. */
  get status(): { bytes: number; waiting: number } {
    return { bytes: this.#taken, waiting: this.#waiting.size }
  }

  /** Resolves with the way to give the room back, once; rejects with UNAVAILABLE `BODIES_FULL` after BODY_WAIT_MS. */
  take(holder: string, bytes: number, clock: Clock): Promise<() => void> {
    if (this.#fits(holder, bytes)) return Promise.resolve(this.#grant(holder, bytes))
    if (this.#waiting.size >= BODIES_WAITING_MAX) return Promise.reject(full())
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        holder,
        bytes,
        go: () => {
          this.#waiting.delete(waiter)
          cancel()
          resolve(this.#grant(holder, bytes))
        },
      }
      const cancel = clock.after(BODY_WAIT_MS, () => {
        this.#waiting.delete(waiter)
        reject(full())
      })
      this.#waiting.add(waiter)
    })
  }

  #fits(holder: string, bytes: number): boolean {
    const own = this.#held.get(holder) ?? 0
    return this.#taken + bytes <= this.#max && own + bytes <= this.#max / 2
  }

  #grant(holder: string, bytes: number): () => void {
    this.#taken += bytes
    this.#held.set(holder, (this.#held.get(holder) ?? 0) + bytes)
    let given = false
    return () => {
      if (given) return
      given = true
      this.#taken -= bytes
      const left = (this.#held.get(holder) ?? 0) - bytes
      if (left > 0) this.#held.set(holder, left)
      else this.#held.delete(holder)
      for (const waiter of this.#waiting) if (this.#fits(waiter.holder, waiter.bytes)) waiter.go()
    }
  }
}

const full = (): AppError =>
  new AppError('UNAVAILABLE', 'The engine holds as many large bodies as it can', {
    details: {
      reason: 'BODIES_FULL',
      retryAfterMs: 1_000,
      next: 'Try again in a second, or send fewer large calls at once',
    },
  })

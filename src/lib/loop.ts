// A loop takes no input (rule 7): periodic and woken, idempotent, no inner retries. A missed wake costs only delay.
import type { Cancel, Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'

export type LoopSpec = {
  name: string
  everyMs: number
  /** One pass. Re-reads the truth; what it returns is the status an operator reads. */
  pass(signal: AbortSignal): Promise<Record<string, unknown>>
}

export type LoopStatus = {
  name: string
  passes: number
  failures: number
  /** How long the last pass took. */
  lastMs: number | null
  /** What the last pass that succeeded answered. */
  last: Record<string, unknown> | null
  /** Why the last pass failed; null when it did not. */
  error: string | null
}

/** Wakes that arrive within this time of each other cost one pass. */
const COALESCE_MS = 50

export class Loop {
  readonly #spec: LoopSpec
  readonly #clock: Clock
  readonly #log: Logger
  readonly #stop = new AbortController()
  #timer: Cancel | undefined
  #timerAt = Infinity
  #running: Promise<void> | undefined
  #again = false
  readonly status: LoopStatus

  constructor(spec: LoopSpec, deps: { clock: Clock; log: Logger }) {
    this.#spec = spec
    this.#clock = deps.clock
    this.#log = deps.log.child({ loop: spec.name })
    this.status = { name: spec.name, passes: 0, failures: 0, lastMs: null, last: null, error: null }
  }

  start(): void {
    this.#arm(0)
  }

  /** Asks for a pass soon; asking during one gives one more after it. */
  wake(): void {
    if (this.#running) this.#again = true
    else this.#arm(COALESCE_MS)
  }

  /** No new pass; resolves when the one under way has ended. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error('the loop stops'))
    this.#timer?.()
    await this.#running
  }

  #arm(ms: number): void {
    if (this.#stop.signal.aborted) return
    const at = this.#clock.monotonic() + ms
    if (at >= this.#timerAt) return
    this.#timer?.()
    this.#timerAt = at
    this.#timer = this.#clock.after(ms, () => {
      this.#timerAt = Infinity
      this.#running = this.#pass()
    })
  }

  async #pass(): Promise<void> {
    const began = this.#clock.monotonic()
    try {
      this.status.last = await this.#spec.pass(this.#stop.signal)
      if (this.status.error !== null) this.#log.info('passes succeed again')
      this.status.error = null
    } catch (error) {
      const told = messageOf(error)
      // Said once: while the store is away every pass fails, and a line each would bury what else happens.
      if (told !== this.status.error && !this.#stop.signal.aborted)
        this.#log.error({ err: error }, 'passes fail')
      this.status.error = told
      this.status.failures++
    }
    this.status.passes++
    this.status.lastMs = this.#clock.monotonic() - began
    this.#running = undefined
    this.#arm(this.#again ? COALESCE_MS : this.#spec.everyMs)
    this.#again = false
  }
}

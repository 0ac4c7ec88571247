// Keeps a session alive: dials, and dials again, until the program leaves or an operator is needed (ND-4).
import type { Clock } from '#lib/clock.ts'
import { NO_FAILURES, redial, type Outcome } from '#session/outcome.ts'
import type { Transport } from '#protocol/pipe.ts'
import type { Session } from '#session/session.ts'
import { waysOf, type LastWay } from '#session/ways.ts'

export type SupervisorDeps = {
  clock: Clock
  random: Parameters<typeof redial>[2]['random']
  /** A fresh session: the server, the identity and REGISTER are read anew. `ways`: undefined for both, raced. */
  attempt(ways: readonly Transport[] | undefined): Session
  /** Told at each end that is not the last, with the wait before the next dial. */
  onRetry(outcome: Extract<Outcome, { kind: 'served' | 'retryable' }>, waitMs: number): void
}

export type Ended = Extract<Outcome, { kind: 'drained' | 'fatal' }>

export class Supervisor {
  readonly #deps: SupervisorDeps
  readonly #stop = new AbortController()
  #leaving = false
  #session: Session | undefined

  constructor(deps: SupervisorDeps) {
    this.#deps = deps
  }

  /** The session of the moment, dialling or serving. */
  get session(): Session | undefined {
    return this.#session
  }

  async run(): Promise<Ended> {
    const { clock, random } = this.#deps
    let failures = NO_FAILURES
    let last: LastWay | undefined
    while (!this.#stop.signal.aborted && !this.#leaving) {
      this.#session = this.#deps.attempt(waysOf(last, clock.monotonic()))
      const outcome = await this.#session.run()
      if (outcome.kind === 'drained' || outcome.kind === 'fatal') return outcome
      if (outcome.kind === 'served')
        last = { transport: outcome.transport, endedAt: clock.monotonic(), dials: 0 }
      else if (last) last = { ...last, dials: last.dials + 1 }
      const next = redial(outcome, failures, { now: clock.monotonic(), random })
      failures = next.failures
      if (this.#leaving) break
      this.#deps.onRetry(outcome, next.waitMs)
      await clock.sleep(next.waitMs, this.#stop.signal).catch(() => undefined)
    }
    return { kind: 'drained' }
  }

  /** Tells the engine that this program stops: no new work comes, and after an end there is no other dial. */
  leave(): void {
    this.#leaving = true
    this.#session?.leave()
  }

  /** Ends the session; `run` then resolves with `drained`. */
  close(): void {
    this.#stop.abort()
    this.#session?.close()
  }
}

// Children that were started before it is known what they will run: a first invocation need not wait for one.
//
// Invariants
// 1. At most `countMax` are ready or starting, and each is booked (`book`) from before it starts until it is taken,
//    given up or gone.
// 2. One starts at a time: what runs meanwhile keeps most of the machine.
// 3. One that dies or does not start is replaced, later each time until one is ready again.
import type { Cancel, Clock } from '#lib/clock.ts'
import type { Runner } from '#wasm/runner.ts'

/** Two: while one is bound and the next starts, another function may come for the first time. */
export const BLANKS_MAX = 2
const RETRY_MS_FIRST = 1_000
const RETRY_MS_MAX = 60_000

export type BlankDeps = {
  clock: Clock
  countMax: number
  start(): Promise<Runner>
  /** Takes room for one; false when there is none. */
  book(): boolean
  unbook(): void
}

export class BlankRunners {
  readonly #deps: BlankDeps
  readonly #ready = new Set<Runner>()
  #starting: Promise<Runner | undefined> | undefined
  #failures = 0
  #retry: Cancel | undefined
  #closed = false

  constructor(deps: BlankDeps) {
    this.#deps = deps
  }

  get count(): number {
    return this.#ready.size + (this.#starting === undefined ? 0 : 1)
  }

  /** Starts what is missing, as far as there is room. */
  topUp(): void {
    const deps = this.#deps
    if (this.#closed || this.#starting !== undefined || this.#retry !== undefined) return
    if (this.#ready.size >= deps.countMax || !deps.book()) return
    const starting: Promise<Runner | undefined> = this.#start().then((runner) => {
      // Taken while it started: it is booked no more and belongs to who took it.
      if (this.#starting !== starting) return runner
      this.#starting = undefined
      if (runner === undefined) this.#failed()
      else this.#keep(runner)
      return runner
    })
    this.#starting = starting
  }

  /**
   * One for the caller to bind, no longer booked here; undefined when there is none. One that is still starting may turn
   * out not to start: undefined then too.
   */
  async take(): Promise<Runner | undefined> {
    for (const runner of this.#ready) {
      this.#release(runner)
      if (runner.state === 'idle') return runner
    }
    const starting = this.#starting
    if (starting === undefined) return undefined
    this.#starting = undefined
    this.#deps.unbook()
    return starting
  }

  /** Gives one up to make room; false when there is none. Resolves when its process is gone. */
  async giveUp(): Promise<boolean> {
    if (this.count === 0) return false
    const runner = await this.take()
    await runner?.close()
    return true
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#retry?.()
    while (await this.giveUp());
  }

  async #start(): Promise<Runner | undefined> {
    try {
      return await this.#deps.start()
    } catch {
      return undefined
    }
  }

  #keep(runner: Runner): void {
    this.#failures = 0
    this.#ready.add(runner)
    void runner.ended.then(() => {
      if (!this.#ready.has(runner)) return
      this.#release(runner)
      this.#later()
    })
    this.topUp()
  }

  #failed(): void {
    this.#deps.unbook()
    this.#later()
  }

  #later(): void {
    if (this.#closed || this.#retry !== undefined) return
    const waitMs = Math.min(RETRY_MS_MAX, RETRY_MS_FIRST * 2 ** Math.min(this.#failures++, 30))
    this.#retry = this.#deps.clock.after(waitMs, () => {
      this.#retry = undefined
      this.topUp()
    })
  }

  #release(runner: Runner): void {
    if (this.#ready.delete(runner)) this.#deps.unbook()
  }
}

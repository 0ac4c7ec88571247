// Runners of this node: processes, each bound to one function's artifact, kept warm between invocations.
//
// Invariants
// 1. A runner is lent to one invocation at a time, and comes back idle or dead.
// 2. What runs and what idles stays below `memMbMax` and `runnersMax`: the runner idle longest makes room, a busy one
//    never does; when everything is busy the next is refused.
// 3. A runner idle for `idleMs` is closed. One blank child waits for whatever comes first, while there is room for it.
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import { Runner } from '#wasm/runner.ts'

/** A child is a process of 60 MB: this many are a busy 8 GB machine. */
export const RUNNERS_MAX = 96
export const RUNNER_IDLE_MS = 120_000
/** Guests up to this size can use a child that was started before it was known what it would run. */
const BLANK_MEM_MB = 256

export type PoolDeps = {
  clock: Clock
  /** Path of the Node binary. */
  node: string
  /** Without it runners have the bare jail. */
  jail?: Jail
  memMbMax: number
  runnersMax?: number
  idleMs?: number
  /** How the artifact's bytes are had; called only when a new runner is bound. */
  artifact(sha256: string): Promise<Uint8Array>
}

export type Bound = { functionId: string; sha256: string; memMb: number; cpuMillis: number }
type Entry = { key: string; runner: Runner; memMb: number; busy: boolean; expire: Cancel }

export class RunnerPool {
  readonly #deps: PoolDeps
  readonly #entries = new Set<Entry>()
  #starting = 0
  #startingMb = 0
  #blank: Promise<Runner | undefined> | undefined
  #closed = false

  constructor(deps: PoolDeps) {
    this.#deps = deps
  }

  get size(): number {
    return this.#entries.size
  }

  /**
   * Lends a runner to `use`. Rejects with UNAVAILABLE `NODE_FULL` when busy runners fill the node, and with what
   * starting a runner may reject with.
   */
  async with<T>(bound: Bound, use: (runner: Runner) => Promise<T>): Promise<T> {
    const entry = this.#idle(keyOf(bound)) ?? (await this.#start(bound))
    try {
      return await use(entry.runner)
    } finally {
      this.#giveBack(entry)
    }
  }

  /** Starts the blank child, so that the first function need not wait for it. */
  warm(): void {
    if (this.#closed || this.#blank || !this.#roomFor(BLANK_MEM_MB + RUNNER_MEM_MB)) return
    const blank = Runner.blank({ memMb: BLANK_MEM_MB, ...this.#means }).catch(() => undefined)
    this.#blank = blank
  }

  async close(): Promise<void> {
    this.#closed = true
    const blank = this.#blank
    this.#blank = undefined
    const all = [...this.#entries].map((entry) => this.#drop(entry))
    await Promise.all([...all, blank?.then((runner) => runner?.close())])
  }

  get #means(): { node: string; clock: Clock; jail?: Jail } {
    const { node, clock, jail } = this.#deps
    return { node, clock, ...(jail === undefined ? {} : { jail }) }
  }

  #idle(key: string): Entry | undefined {
    // The one used last is the warmest.
    const found = [...this.#entries].findLast(
      (entry) => entry.key === key && !entry.busy && entry.runner.state === 'idle',
    )
    if (!found) return undefined
    found.expire()
    found.busy = true
    return found
  }

  async #start(bound: Bound): Promise<Entry> {
    const cost = bound.memMb + RUNNER_MEM_MB
    if (this.#closed) throw unavailable('NODE_STOPPING', 'the agent stops')
    await this.#reserve(cost)
    try {
      const artifact = await this.#deps.artifact(bound.sha256)
      const runner = await this.#bind(artifact, bound)
      const entry: Entry = { key: keyOf(bound), runner, memMb: cost, busy: true, expire: () => {} }
      if (this.#closed) {
        await runner.close()
        throw unavailable('NODE_STOPPING', 'the agent stops')
      }
      this.#entries.add(entry)
      runner.ended
        .then(() => {
          entry.expire()
          this.#entries.delete(entry)
        })
        .catch(() => undefined)
      return entry
    } finally {
      this.#starting--
      this.#startingMb -= cost
      this.warm()
    }
  }

  async #bind(artifact: Uint8Array, { memMb, cpuMillis }: Bound): Promise<Runner> {
    const waiting = memMb <= BLANK_MEM_MB ? this.#blank : undefined
    if (waiting) {
      this.#blank = undefined
      const blank = await waiting
      if (blank && blank.state === 'idle') {
        await blank.load({ artifact, memMb, cpuMillis })
        return blank
      }
    }
    return Runner.start({ artifact, memMb, cpuMillis, ...this.#means })
  }

  #giveBack(entry: Entry): void {
    entry.busy = false
    if (entry.runner.state !== 'idle' || this.#closed) {
      this.#drop(entry).catch(() => undefined)
      return
    }
    // To the end: the order is that of use.
    this.#entries.delete(entry)
    this.#entries.add(entry)
    entry.expire = this.#deps.clock.after(this.#deps.idleMs ?? RUNNER_IDLE_MS, () => {
      this.#drop(entry).catch(() => undefined)
    })
  }

  /** Takes the room for a runner that is about to start, and makes it first where it must. */
  async #reserve(memMb: number): Promise<void> {
    for (;;) {
      if (this.#roomFor(memMb)) {
        this.#starting++
        this.#startingMb += memMb
        return
      }
      const idle = [...this.#entries].find((entry) => !entry.busy)
      if (!idle)
        throw unavailable(
          'NODE_FULL',
          `the node has no room for a runner of ${memMb} MB: ${this.#entries.size} are busy`,
        )
      await this.#drop(idle)
    }
  }

  #roomFor(memMb: number): boolean {
    let used = this.#startingMb
    for (const entry of this.#entries) used += entry.memMb
    const count = this.#entries.size + this.#starting
    return used + memMb <= this.#deps.memMbMax && count < (this.#deps.runnersMax ?? RUNNERS_MAX)
  }

  async #drop(entry: Entry): Promise<void> {
    entry.expire()
    this.#entries.delete(entry)
    await entry.runner.close()
  }
}

const keyOf = ({ functionId, sha256, memMb, cpuMillis }: Bound): string =>
  `${functionId}/${sha256}/${memMb}/${cpuMillis}`

const unavailable = (reason: string, message: string): AppError =>
  new AppError('UNAVAILABLE', message, { details: { reason } })

// Runners of this node: processes, each bound to one function's artifact, kept warm between invocations.
//
// Invariants
// 1. A runner is lent to one invocation at a time, and comes back idle or dead.
// 2. What runs, idles and waits blank stays below `memMbMax` and `runnersMax`, each child with what it books. Blank
//    children make room first, then the runner idle longest; a busy one never does: when all are busy the next is
//    refused.
// 3. A runner is closed when it idled for `idleMs`, when it served `servedMax` invocations, or when its process holds
//    more memory than it books: what leaks in it leaks no further.
// 4. While room is made or waited for, no blank child starts in it.
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import { Runner } from '#wasm/runner.ts'
import { BLANKS_MAX, BlankRunners } from '#agent/drivers/wasm/blank-runners.ts'
import { residentMb } from '#agent/drivers/wasm/resident.ts'

/** Children of one node at a time; the manifest offers no more than they can use. Each needs a uid of UID_RANGE (900). */
export const RUNNERS_MAX = 800
const RUNNER_IDLE_MS = 120_000
/** A new child costs 100 ms of CPU: 10 µs an invocation. */
const RUNNER_SERVED_MAX = 10_000
/** Guests up to this size can use a child that was started before it was known what it would run. */
const BLANK_MEM_MB = 256
/** Reading what the kernel counts takes 50 µs. */
const RESIDENT_CHECK_EVERY = 100

export type PoolDeps = {
  clock: Clock
  /** Path of the Node binary. */
  node: string
  /** Without it runners have the bare jail. */
  jail?: Jail
  memMbMax: number
  runnersMax?: number
  blanksMax?: number
  idleMs?: number
  servedMax?: number
  /** Beside the guest's own; by default what is booked. */
  residentMbMax?: number
  /** How the artifact's bytes are had; called only when a new runner is bound. */
  artifact(sha256: string): Promise<Uint8Array>
}

export type Bound = { functionId: string; sha256: string; memMb: number; cpuMillis: number }

type Entry = {
  key: string
  runner: Runner
  memMb: number
  /** What it books: its guest's memory and its own. */
  bookedMb: number
  served: number
  expire: Cancel
}

export class RunnerPool {
  readonly #deps: PoolDeps
  readonly #blanks: BlankRunners
  readonly #all = new Set<Entry>()
  /** In the order of their last use, the longest ago first. */
  readonly #idle = new Set<Entry>()
  /** The same by key, the last used at the end. */
  readonly #idleOf = new Map<string, Entry[]>()
  /** Runners that end, each until its process is gone. */
  readonly #ending = new Set<Promise<void>>()
  /** Those that look for room. */
  #reserving = 0
  #bookedMb = 0
  #bookedCount = 0
  #closed = false

  constructor(deps: PoolDeps) {
    this.#deps = deps
    this.#blanks = new BlankRunners({
      clock: deps.clock,
      countMax: deps.blanksMax ?? BLANKS_MAX,
      start: () => Runner.blank({ memMb: BLANK_MEM_MB, ...this.#means }),
      book: () => this.#book(RUNNER_MEM_MB),
      unbook: () => this.#unbook(RUNNER_MEM_MB),
    })
  }

  /** Runners that are bound. */
  get size(): number {
    return this.#all.size
  }

  /** Runners that are lent now. */
  get busy(): number {
    return this.#all.size - this.#idle.size
  }

  /** Children that wait for a function, or are about to. */
  get blanks(): number {
    return this.#blanks.count
  }

  /**
   * Lends a runner to `use`. Rejects with UNAVAILABLE `NODE_FULL` when busy runners fill the node, and with what
   * starting a runner may reject with.
   */
  async with<T>(bound: Bound, use: (runner: Runner) => Promise<T>): Promise<T> {
    const entry = this.#takeIdle(keyOf(bound)) ?? (await this.#start(bound))
    try {
      return await use(entry.runner)
    } finally {
      this.#giveBack(entry)
    }
  }

  /** Starts blank children, so that the first function need not wait for one. */
  warm(): void {
    if (!this.#closed && this.#reserving === 0) this.#blanks.topUp()
  }

  /** Resolves when no process is left. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([this.#blanks.close(), ...[...this.#all].map((entry) => this.#drop(entry))])
  }

  get #means(): { node: string; clock: Clock; jail?: Jail } {
    const { node, clock, jail } = this.#deps
    return { node, clock, ...(jail === undefined ? {} : { jail }) }
  }

  #takeIdle(key: string): Entry | undefined {
    // The one used last is the warmest; one that has died may not be told yet.
    const entry = this.#idleOf.get(key)?.findLast(({ runner }) => runner.state === 'idle')
    if (entry !== undefined) this.#unidle(entry)
    return entry
  }

  async #start(bound: Bound): Promise<Entry> {
    if (this.#closed) throw stopping()
    const bookedMb = bound.memMb + RUNNER_MEM_MB
    const blank = bound.memMb <= BLANK_MEM_MB ? this.#blanks.take() : undefined
    let booked = false
    let runner: Runner | undefined
    try {
      this.#reserving++
      await this.#reserve(bookedMb).finally(() => this.#reserving--)
      booked = true
      const artifact = await this.#deps.artifact(bound.sha256)
      runner = await this.#bind(blank, artifact, bound)
      if (this.#closed) throw stopping()
      return this.#add(runner, bound, bookedMb)
    } catch (error) {
      await (runner ?? (await blank))?.close()
      if (booked) this.#unbook(bookedMb)
      throw error
    } finally {
      this.warm()
    }
  }

  async #bind(
    blank: Promise<Runner | undefined> | undefined,
    artifact: Uint8Array,
    { memMb, cpuMillis }: Bound,
  ): Promise<Runner> {
    const waiting = await blank
    if (waiting?.state !== 'idle')
      return Runner.start({ artifact, memMb, cpuMillis, ...this.#means })
    await waiting.load({ artifact, memMb, cpuMillis })
    return waiting
  }

  #add(runner: Runner, bound: Bound, bookedMb: number): Entry {
    const { memMb } = bound
    const entry: Entry = {
      key: keyOf(bound),
      runner,
      memMb,
      bookedMb,
      served: 0,
      expire: () => {},
    }
    this.#all.add(entry)
    void runner.ended.then(() => this.#remove(entry))
    return entry
  }

  #giveBack(entry: Entry): void {
    entry.served++
    if (this.#closed || entry.runner.state !== 'idle' || this.#isWorn(entry)) {
      void this.#drop(entry)
      return
    }
    this.#idle.add(entry)
    const same = this.#idleOf.get(entry.key)
    if (same === undefined) this.#idleOf.set(entry.key, [entry])
    else same.push(entry)
    entry.expire = this.#deps.clock.after(this.#deps.idleMs ?? RUNNER_IDLE_MS, () => {
      void this.#drop(entry)
    })
  }

  #isWorn({ served, memMb, runner }: Entry): boolean {
    const { servedMax = RUNNER_SERVED_MAX, residentMbMax = RUNNER_MEM_MB } = this.#deps
    if (served >= servedMax) return true
    if (served % RESIDENT_CHECK_EVERY !== 0) return false
    return (residentMb(runner.pid) ?? 0) > memMb + residentMbMax
  }

  /** Takes the room for a runner that is about to start, and makes it first where it must. */
  async #reserve(memMb: number): Promise<void> {
    while (!this.#book(memMb)) {
      if (await this.#blanks.giveUp()) continue
      const [oldest] = this.#idle
      if (oldest !== undefined) await this.#drop(oldest)
      // One that has answered may still be about to leave: who books by the answers counts it no more.
      else if (this.#ending.size > 0) await Promise.race(this.#ending)
      else
        throw unavailable(
          'NODE_FULL',
          `the node has no room for a runner of ${memMb} MB: ${this.#all.size} are busy`,
        )
    }
  }

  #book(memMb: number): boolean {
    const { memMbMax, runnersMax = RUNNERS_MAX } = this.#deps
    if (this.#bookedMb + memMb > memMbMax || this.#bookedCount >= runnersMax) return false
    this.#bookedMb += memMb
    this.#bookedCount++
    return true
  }

  #unbook(memMb: number): void {
    this.#bookedMb -= memMb
    this.#bookedCount--
  }

  #unidle(entry: Entry): void {
    if (!this.#idle.delete(entry)) return
    entry.expire()
    const same = this.#idleOf.get(entry.key) ?? []
    same.splice(same.lastIndexOf(entry), 1)
    if (same.length === 0) this.#idleOf.delete(entry.key)
  }

  async #drop(entry: Entry): Promise<void> {
    this.#unidle(entry)
    const ending = entry.runner.close().finally(() => {
      this.#ending.delete(ending)
      this.#remove(entry)
    })
    this.#ending.add(ending)
    await ending
  }

  #remove(entry: Entry): void {
    this.#unidle(entry)
    if (!this.#all.delete(entry)) return
    this.#unbook(entry.bookedMb)
    this.warm()
  }
}

const keyOf = ({ functionId, sha256, memMb, cpuMillis }: Bound): string =>
  `${functionId}/${sha256}/${memMb}/${cpuMillis}`

const unavailable = (reason: string, message: string): AppError =>
  new AppError('UNAVAILABLE', message, { details: { reason } })

const stopping = (): AppError => unavailable('NODE_STOPPING', 'the agent stops')

// The embedded Postgres of one state folder, kept running.
// 1. It survives us and we survive it: a postmaster that runs is adopted, one that dies is started again for ever.
// 2. The caller holds the state folder's lock: nobody else starts, adopts or stops this postmaster.
import type { Cancel, Clock } from '#lib/clock.ts'
import { backoffMs } from '#lib/backoff.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import type { StoreTarget } from '#store/connect.ts'
import { postgresBinaries } from '#store/embedded/binaries.ts'
import { postgresOwner } from '#store/embedded/owner.ts'
import {
  endOrphans,
  findPostmaster,
  isAlive,
  lastWords,
  launch,
  type Postmaster,
  prepare,
  removeStale,
  type Site,
  stopPostmaster,
  SUPERUSER,
  untilReady,
} from '#store/embedded/process.ts'
import { firstClosedParent, type StateFolder } from '#store/state-folder.ts'

/** After a crash Postgres replays its log first; at 1 GiB of it on a slow disk that takes a minute or two. */
const READY_TIMEOUT_MS = 180_000
/** Backends of a killed postmaster take a moment to notice, and until then a new one refuses to start. */
const LEFTOVERS_TIMEOUT_MS = 15_000
const WATCH_EVERY_MS = 250
const RESTART = { baseMs: 100, capMs: 5000 }

export type EmbeddedEvent =
  | { kind: 'died'; pid: number }
  | { kind: 'restarted'; pid: number; ms: number }
  | { kind: 'restart-failed'; error: string }

export type EmbeddedSpec = {
  folder: StateFolder
  onEvent?: (event: EmbeddedEvent) => void
  /** Server settings by name. */
  settings?: Record<string, string>
  /** False for throw-away data only: nothing is flushed when the folder is made. Default true. */
  durable?: boolean
}

type Deps = { clock: Clock; random: Random }
type Watched = Deps & { onEvent: ((event: EmbeddedEvent) => void) | undefined }

/**
 * Makes the data folder when missing, adopts or starts its postmaster, and watches it. Errors: INVALID_STATE with a
 * reason and what to do.
 */
export async function startEmbedded(spec: EmbeddedSpec, deps: Deps): Promise<Embedded> {
  const owner = await postgresOwner()
  if (owner.other) {
    const closed = await firstClosedParent(spec.folder.root)
    if (closed !== undefined)
      throw new AppError('INVALID_STATE', `The user postgres cannot walk through ${closed}`, {
        details: {
          reason: 'STATE_FOLDER_CLOSED',
          next: `chmod o+x ${closed}, or set CLUTCH_HOME to a folder elsewhere, such as /var/lib/clutch`,
        },
      })
  }
  const mustCopy = owner.other !== undefined
  const binaries = await postgresBinaries({ copyTo: spec.folder.runtime, mustCopy }, deps.random)
  const { settings = {}, durable = true } = spec
  const site = await prepare(spec.folder.postgres, { binaries, owner, settings, durable })
  return new Embedded(site, await bringUp(site, deps.clock), { ...deps, onEvent: spec.onEvent })
}

type Up = { postmaster: Postmaster; adopted: boolean }

async function bringUp(site: Site, clock: Clock): Promise<Up> {
  const deadline = clock.monotonic() + LEFTOVERS_TIMEOUT_MS
  for (;;) {
    const found = findPostmaster(site.data)
    if (!found) {
      await removeStale(site.data, clock)
      await endOrphans(site.data, clock)
    }
    const postmaster = found ?? (await launch(site))
    const readiness = await untilReady(site, postmaster, { clock, timeoutMs: READY_TIMEOUT_MS })
    if (readiness === 'ready') return { postmaster, adopted: found !== undefined }
    const words = await lastWords(site)
    const leftover = /pre-existing shared memory|lock file|still in use/.test(words)
    if (found === undefined && !(leftover && clock.monotonic() < deadline))
      throw new AppError('INVALID_STATE', `Postgres ended: ${words}`, {
        details: { reason: 'EMBEDDED_ENDED', next: `See ${site.log}` },
      })
    await clock.sleep(100)
  }
}

export class Embedded {
  readonly #site: Site
  readonly #deps: Watched
  #postmaster: Postmaster
  #timer: Cancel | undefined
  #restarting: Promise<void> | undefined
  readonly #stop = new AbortController()
  /** A running postmaster was found and taken over. */
  readonly adopted: boolean
  readonly target: StoreTarget

  constructor(site: Site, up: Up, deps: Watched) {
    this.#site = site
    this.#deps = deps
    this.#postmaster = up.postmaster
    this.adopted = up.adopted
    this.target = { host: site.socket, user: SUPERUSER, database: SUPERUSER }
    this.#watch()
  }

  get pid(): number {
    return this.#postmaster.pid
  }

  /** A clean shutdown; also while it is being restarted. */
  async stop(): Promise<void> {
    await this.detach()
    const running = findPostmaster(this.#site.data)
    if (running) await stopPostmaster(running, this.#deps.clock)
    await endOrphans(this.#site.data, this.#deps.clock)
  }

  /** Stops watching and leaves Postgres running. */
  async detach(): Promise<void> {
    this.#stop.abort(new Error('the embedded database stops'))
    this.#timer?.()
    await this.#restarting
  }

  #watch(): void {
    if (this.#stop.signal.aborted) return
    this.#timer = this.#deps.clock.after(WATCH_EVERY_MS, () => {
      if (isAlive(this.#postmaster)) return this.#watch()
      this.#deps.onEvent?.({ kind: 'died', pid: this.#postmaster.pid })
      this.#restarting = this.#restart()
    })
  }

  async #restart(): Promise<void> {
    const { clock, random, onEvent } = this.#deps
    const { signal } = this.#stop
    const began = clock.monotonic()
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        this.#postmaster = (await bringUp(this.#site, clock)).postmaster
        onEvent?.({ kind: 'restarted', pid: this.pid, ms: clock.monotonic() - began })
        return this.#watch()
      } catch (error) {
        onEvent?.({ kind: 'restart-failed', error: messageOf(error) })
        await clock.sleep(backoffMs(failures, RESTART, random), signal).catch(() => undefined)
      }
    }
  }
}

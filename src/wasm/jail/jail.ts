// What holds a child: layers of the kernel around one process, opened once by the program that starts children.
// 1. A child's place (uid, cgroups) is used again only when no process is left in it.
// 2. A layer that is not there is in `missing`: found by looking at a child that was started (open-jail.ts).
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync } from 'node:fs'
import type { Clock } from '#lib/clock.ts'
import { jailedCommand, type Limits, type View } from '#wasm/jail/command.ts'
import type { FilterFile } from '#wasm/jail/filter-file.ts'
import type { Layer, Missing } from '#wasm/jail/layers.ts'
import { below } from '#wasm/jail/below.ts'
import { inheritedFds } from '#wasm/jail/inherited-fds.ts'
import { isEmpty, type Place, type Places } from '#wasm/jail/places.ts'
import type { OpenView } from '#wasm/jail/view.ts'

/** What a child may take; both follow from the function, which a blank child does not know yet. */
export type Share = {
  /** Thousandths of a core, as a share and a quota. */
  cpuMillis: number
  /** All of its memory, the runner's own included. */
  memMb: number
}

export type JailedSpec = {
  /** Path of the Node binary. */
  node: string
  args: string[]
  limits: Limits
  /** From the start; `limit` changes it. Without: memory and CPU as far as the machine goes. */
  share?: Partial<Share>
}

/** One child in the jail. Its stdin, stdout and stderr are pipes. */
export type Jailed = {
  place: Place
  process: ChildProcess
  /** Sets what it may take from now on; a layer that is missing here leaves it as it is. */
  limit(share: Partial<Share>): void
  /** Ends it and all that it may have started, at once. */
  kill(): void
  /** Whether the kernel ended it because it took more memory than its share. */
  outOfMemory(): boolean
}

/** A layer that is not there, and why. */
export type Note = { name: Missing; why: string }

/** What a jail is made of; undefined parts are missing. */
export type JailParts = {
  clock: Clock
  layers: ReadonlySet<Layer>
  notes: readonly Note[]
  privileged: boolean
  view: OpenView | undefined
  filter: FilterFile | undefined
  places: Places
  close(): void
}

/**
 * Ends the child, and lets bubblewrap collect it and end: an orphan would have to be collected by the machine's first
 * process, which not every container has.
 */
function killChild(outer: ChildProcess, clock: Clock): void {
  const inner = hasEnded(outer) ? [] : below(outer.pid ?? 0)
  for (const pid of inner) tryKill(pid)
  if (inner.length === 0) killGroup(outer)
  else clock.after(COLLECT_MS_MAX, () => killGroup(outer))
}

/**
 * The child and bubblewrap are one process group. While bubblewrap sets up, the child waits for it and is not yet bound
 * to its life: bubblewrap killed alone would leave the child waiting for ever.
 */
function killGroup(outer: ChildProcess): void {
  if (outer.pid !== undefined && !hasEnded(outer)) tryKill(-outer.pid)
}

const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean =>
  exitCode !== null || signalCode !== null

function tryKill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended this moment.
  }
}

/** What cannot be looked at now (no descriptor left) may still hold a process. */
function surelyEmpty(place: Place): boolean {
  try {
    return isEmpty(place)
  } catch {
    return false
  }
}

/** bubblewrap ends a moment after its child. */
const COLLECT_MS_MAX = 50

/** Descriptors 0 to 2 are the pipes; what bubblewrap is handed comes after them. */
const FIRST_FD = 3
/** How often a place is looked at until its last process is gone. */
const EMPTY_EVERY_MS = 20

export class Jail {
  readonly #parts: JailParts
  readonly #inherited: readonly number[]

  constructor(parts: JailParts) {
    this.#parts = parts
    this.#inherited = inheritedFds()
  }

  /** Short names of the layers that this machine or user does not give, for the manifest. */
  get missing(): readonly Missing[] {
    return this.#parts.notes.map(({ name }) => name)
  }

  get notes(): readonly Note[] {
    return this.#parts.notes
  }

  get layers(): ReadonlySet<Layer> {
    return this.#parts.layers
  }

  /** Starts one child. Throws UNAVAILABLE `JAIL_FULL` when every uid of the range is taken. */
  spawn({ node, args, limits, share = {} }: JailedSpec): Jailed {
    const place = this.#parts.places.take(limits.tasksMax)
    let child: ChildProcess
    try {
      place.cgroup?.limit(share)
      child = this.#start({ node, args, limits }, place)
    } catch (error) {
      void this.#giveBack(place)
      throw error
    }
    const oomKills = place.cgroup?.oomKills() ?? 0
    let gone = false
    // A child that could not start at all says 'error', and 'close' too or not.
    const leave = (): void => {
      if (!gone) void this.#giveBack(place)
      gone = true
    }
    child.once('close', leave)
    child.once('error', () => child.pid === undefined && leave())
    return {
      place,
      process: child,
      // The place may be another's by then.
      limit: (changed) => {
        if (!gone) place.cgroup?.limit(changed)
      },
      kill: () => {
        if (!gone) place.cgroup?.lift()
        killChild(child, this.#parts.clock)
      },
      outOfMemory: () => (place.cgroup?.oomKills() ?? 0) > oomKills,
    }
  }

  #start({ node, args, limits }: Omit<JailedSpec, 'share'>, place: Place): ChildProcess {
    const { layers, privileged, view, filter } = this.#parts
    const given = view?.files.map(({ fd }) => fd) ?? []
    const filterFd = filter?.open()
    const handed = filterFd === undefined ? given : [...given, filterFd]
    const inside: View | undefined = view && {
      bubblewrap: view.bubblewrap,
      libraries: view.libraries,
      opened: view.files.map(({ inside: path }, index) => ({ fd: FIRST_FD + index, inside: path })),
      filterFd: filterFd === undefined ? undefined : FIRST_FD + given.length,
    }
    const clean = layers.has('environment')
    const [command = '', ...rest] = jailedCommand(node, args, {
      layers,
      limits,
      privileged,
      uid: place.uid,
      view: inside,
      joins: place.cgroup?.joins ?? [],
      // The first ones are overwritten by what is handed.
      inherited: clean ? this.#inherited.filter((fd) => fd >= FIRST_FD + handed.length) : [],
    })
    // A session and a process group of its own: Ctrl-C at a terminal stops the parent, which then drains; it does not
    // reach the guest.
    const options = { cwd: '/', detached: true, ...(clean ? { env: {} } : {}) }
    try {
      return spawn(command, rest, { ...options, stdio: ['pipe', 'pipe', 'pipe', ...handed] })
    } finally {
      if (filterFd !== undefined) closeSync(filterFd)
    }
  }

  /** Gives back what the jail holds of the machine. Close it when its children are gone. */
  close(): void {
    this.#parts.close()
  }

  async #giveBack(place: Place): Promise<void> {
    while (!surelyEmpty(place)) await this.#parts.clock.sleep(EMPTY_EVERY_MS)
    this.#parts.places.give(place)
  }
}

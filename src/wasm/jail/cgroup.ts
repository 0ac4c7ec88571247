// One cgroup a child, for CPU, memory and the number of its threads: version 1 and version 2 behind one shape.
// 1. A slot's cgroups live as long as the jail and serve one child after the other: making and removing them costs more
//    than a child's start.
// 2. What a killed parent left behind is ended and removed at the next start (find-cgroups.ts).
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Share } from '#wasm/jail/jail.ts'

export type Controller = 'cpu' | 'memory' | 'pids'
export const CONTROLLERS: readonly Controller[] = ['cpu', 'memory', 'pids']

/** A quota is counted over this time: 250 cpuMillis may run 25 ms without a stop. */
export const PERIOD_US = 100_000
/** The kernel refuses a shorter quota. */
const QUOTA_MIN_US = 1_000

export const quotaUs = (cpuMillis: number): number =>
  Math.max(QUOTA_MIN_US, Math.round((cpuMillis * PERIOD_US) / 1000))

/** Files of one version, for a child's cgroup in `folder`. */
export type Dialect = {
  /** [file, text] in the order to write them; undefined takes the limit away. */
  cpu(cpuMillis: number | undefined): [string, string][]
  memory(memMb: number | undefined): [string, string][]
  pids(tasksMax: number): [string, string][]
  /** The file that holds a controller's limit: without it the kernel was built without the limit. */
  limitFile: Record<Controller, string>
  /** Where 'oom_kill N' stands. */
  oomFile: string
}

/** A place where children's cgroups are made, for some controllers. */
export type Home = { folder: string; controllers: readonly Controller[]; dialect: Dialect }

export type CgroupSlot = {
  /** Files to write '0' into: who does is inside. */
  joins: string[]
  limit(share: Partial<Share>): void
  /** Takes the limits of the last child away. */
  reset(tasksMax: number): void
  /** A throttled process cannot die before its next turn: without a quota it does at once. */
  lift(): void
  /** How often the kernel ended something in here for its memory. */
  oomKills(): number
  /** Throws when it cannot be told. A cgroup that was removed was empty. */
  isEmpty(): boolean
  /** Whether the process is inside, under every controller, and each has its limit. */
  holds(pid: number): boolean
}

/** The line 'key N' of a flat-keyed file. */
export function keyed(text: string, key: string): number {
  const line = text.split('\n').find((one) => one.startsWith(`${key} `))
  return line === undefined ? 0 : Number(line.slice(key.length + 1))
}

/** Writes what the kernel takes; a limit below what is in use is refused, and the one before it stands. */
function write(folder: string, settings: readonly (readonly [string, string])[]): void {
  for (const [file, text] of settings) {
    try {
      writeFileSync(join(folder, file), text)
    } catch {
      // Older kernels lack a file (burst, swap), or the limit is refused.
    }
  }
}

const readOr = (path: string, otherwise: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return otherwise
  }
}

/** The cgroups of one child: one folder a place. Throws when one cannot be made. */
export function openSlot(places: readonly Home[], name: string): CgroupSlot {
  const homes = places.map((home) => ({ ...home, folder: join(home.folder, name) }))
  for (const { folder } of homes) mkdirSync(folder, { recursive: true })
  const set = (controller: Controller, settings: (d: Dialect) => [string, string][]): void => {
    for (const { folder, controllers, dialect } of homes)
      if (controllers.includes(controller)) write(folder, settings(dialect))
  }
  const pidsIn = (folder: string): string[] => {
    const file = join(folder, 'cgroup.procs')
    const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
    return text.split('\n').filter((line) => line !== '')
  }
  return {
    joins: homes.map(({ folder }) => join(folder, 'cgroup.procs')),
    limit({ cpuMillis, memMb }) {
      if (cpuMillis !== undefined) set('cpu', (dialect) => dialect.cpu(cpuMillis))
      if (memMb !== undefined) set('memory', (dialect) => dialect.memory(memMb))
    },
    reset(tasksMax) {
      set('cpu', (dialect) => dialect.cpu(undefined))
      set('memory', (dialect) => dialect.memory(undefined))
      set('pids', (dialect) => dialect.pids(tasksMax))
    },
    lift: () => set('cpu', (dialect) => dialect.cpu(undefined)),
    oomKills() {
      const home = homes.find(({ controllers }) => controllers.includes('memory'))
      return home === undefined
        ? 0
        : keyed(readOr(join(home.folder, home.dialect.oomFile), ''), 'oom_kill')
    },
    isEmpty: () => homes.every(({ folder }) => pidsIn(folder).length === 0),
    holds: (pid) =>
      homes.every(
        ({ folder, controllers, dialect }) =>
          pidsIn(folder).includes(String(pid)) &&
          controllers.every((controller) =>
            existsSync(join(folder, dialect.limitFile[controller])),
          ),
      ),
  }
}

/** Removes a cgroup and those in it, as far as they are empty. A folder of cgroupfs has no files to remove. */
export function removeCgroup(folder: string): void {
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true }))
      if (entry.isDirectory()) removeCgroup(join(folder, entry.name))
    rmdirSync(folder)
  } catch {
    // Not empty, or gone already: the next start comes by.
  }
}

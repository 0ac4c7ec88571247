// Opens the jail with every layer that this machine and user give, found by starting children and looking at them.
import { readFileSync } from 'node:fs'
import type { Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import { CONTROLLERS, type Home, removeCgroup } from '#wasm/jail/cgroup.ts'
import { type FilterFile, filterFile } from '#wasm/jail/filter-file.ts'
import { findCgroups } from '#wasm/jail/find-cgroups.ts'
import { Jail, type Note } from '#wasm/jail/jail.ts'
import {
  ALL_MISSING,
  BY_BUBBLEWRAP,
  CGROUP_LAYERS,
  LAYERS,
  LAYERS_OF,
  type Layer,
  type Missing,
} from '#wasm/jail/layers.ts'
import { lookAt } from '#wasm/jail/look-at.ts'
import { ownerOf } from '#wasm/jail/owner.ts'
import { Places } from '#wasm/jail/places.ts'
import { seccompProgram } from '#wasm/jail/seccomp-program.ts'
import { UID_RANGE, type UidRange, Uids } from '#wasm/jail/uids.ts'
import { BUBBLEWRAP, hasBubblewrap, openView, type OpenView } from '#wasm/jail/view.ts'

export type JailOptions = {
  clock: Clock
  /** Path of the Node binary. */
  node: string
  /** As root: one for each child. */
  uids?: UidRange
  /** Folders that every child may read; absolute, without symbolic links. */
  folders?: readonly string[]
  /** URLs of modules in those folders, for the native libraries that they need. */
  loads?: readonly string[]
  /** Layers to leave out, in tests: what each of them holds is seen when it is gone. */
  without?: ReadonlySet<Layer>
}

/** What to try without, the least first. */
const GIVE_UP: readonly (readonly Missing[])[] = [
  [],
  ['seccomp'],
  ['own-uid'],
  CGROUP_LAYERS,
  ['bubblewrap', 'seccomp'],
  ['bubblewrap', 'seccomp', 'own-uid'],
  ['bubblewrap', 'seccomp', 'own-uid', ...CGROUP_LAYERS],
]

/** Does not throw for a layer that cannot be had: the jail says which in `notes`, and why. */
export async function openJail(options: JailOptions): Promise<Jail> {
  const means = await gather(options)
  let why = ''
  for (const more of GIVE_UP) {
    const known = new Set(means.notes.map(({ name }) => name))
    const also = more.filter((name) => !known.has(name))
    if (more.length > 0 && also.length === 0) continue
    const notes = [...means.notes, ...also.map((name): Note => ({ name, why }))]
    const jail = assemble(options, means, notes)
    const fault = await lookAt(jail, options)
    if (fault === undefined) return jail
    why ||= fault
  }
  // Nothing starts at all: who starts a child hears why.
  return assemble(
    options,
    means,
    ALL_MISSING.map((name) => ({ name, why })),
  )
}

type Means = {
  privileged: boolean
  homes: Home[]
  uids: Uids | undefined
  view: OpenView | undefined
  filter: FilterFile | undefined
  /** What cannot be had whatever is tried. */
  notes: Note[]
}

async function gather({
  node,
  folders = [],
  loads = [],
  uids = UID_RANGE,
}: JailOptions): Promise<Means> {
  const privileged = process.getuid?.() === 0
  const owner = ownerOf(process.pid)
  const notes: Note[] = []
  const homes = findCgroups({
    mounts: readFileSync('/proc/self/mountinfo', 'utf8'),
    own: readFileSync('/proc/self/cgroup', 'utf8'),
    privileged,
    owner,
  })
  const found = new Set(homes.flatMap(({ controllers }) => controllers))
  for (const controller of CONTROLLERS)
    if (!found.has(controller)) notes.push({ name: `cgroup-${controller}`, why: NO_CGROUP })
  if (!privileged) notes.push({ name: 'own-uid', why: 'only root gives its children other uids' })
  let view: OpenView | undefined
  try {
    if (hasBubblewrap()) view = await openView(node, { folders, loads })
    else notes.push({ name: 'bubblewrap', why: `there is no ${BUBBLEWRAP}` })
  } catch (error) {
    notes.push({ name: 'bubblewrap', why: messageOf(error) })
  }
  const program = seccompProgram(process.arch)
  const filter = program && view && filterFile(program)
  if (view === undefined) notes.push({ name: 'seccomp', why: 'bubblewrap loads it' })
  else if (filter === undefined)
    notes.push({ name: 'seccomp', why: `no table of system calls for ${process.arch}` })
  return {
    privileged,
    homes,
    uids: privileged ? new Uids(uids, owner) : undefined,
    view,
    filter,
    notes,
  }
}

const NO_CGROUP = 'no cgroup of this process may be divided'

function assemble({ clock, without }: JailOptions, means: Means, notes: Note[]): Jail {
  const lacking = new Set(notes.flatMap(({ name }) => LAYERS_OF[name]))
  const layers = new Set(
    LAYERS.filter((layer) => !lacking.has(layer) && without?.has(layer) !== true),
  )
  const { privileged, view, filter } = means
  const uids = layers.has('own-uid') ? means.uids : undefined
  const homes = means.homes
    .map((home) => ({
      ...home,
      controllers: home.controllers.filter((controller) => layers.has(`cgroup-${controller}`)),
    }))
    .filter(({ controllers }) => controllers.length > 0)
  return new Jail({
    clock,
    layers,
    notes,
    privileged,
    view: BY_BUBBLEWRAP.some((layer) => layers.has(layer)) ? view : undefined,
    filter: layers.has('seccomp') ? filter : undefined,
    places: new Places(uids, homes),
    close() {
      means.view?.close()
      means.filter?.close()
      means.uids?.close()
      for (const { folder } of means.homes) removeCgroup(folder)
    },
  })
}

// Where this process may make cgroups for its children, on version 1, version 2, or both at once ("hybrid").
// 1. Below its own cgroup, so that limits set on the whole program hold its children too.
// 2. Version 2: below its own if it is alone in it (a delegated unit), moving itself into a leaf first; else, as root,
//    at the top of the hierarchy, where processes and controllers go together.
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cgroupV1 } from '#wasm/jail/cgroup-v1.ts'
import { cgroupV2 } from '#wasm/jail/cgroup-v2.ts'
import { CONTROLLERS, type Controller, type Home, removeCgroup } from '#wasm/jail/cgroup.ts'
import { isRunning, type Owner, ownerName, parseOwner } from '#wasm/jail/owner.ts'

const PREFIX = 'clutch-jail-'
/** Where a parent goes that makes room for its children's cgroups. */
const LEAF = 'clutch-parent'

export type CgroupSources = {
  /** /proc/self/mountinfo */
  mounts: string
  /** /proc/self/cgroup */
  own: string
  privileged: boolean
  owner: Owner
}

type Hierarchy = { folder: string; top: string; version: 1 | 2; controllers: Controller[] }

const isController = (name: string): name is Controller =>
  CONTROLLERS.some((controller) => controller === name)

/** The hierarchies that are mounted, with our own cgroup's folder in each. */
export function hierarchies({ mounts, own }: Pick<CgroupSources, 'mounts' | 'own'>): Hierarchy[] {
  return mounts.split('\n').flatMap((line) => {
    const [front = '', back = ''] = line.split(' - ')
    const [, , , root = '/', mount = ''] = front.split(' ')
    const [type, , options = ''] = back.split(' ')
    if (type !== 'cgroup' && type !== 'cgroup2') return []
    const controllers = options.split(',').filter(isController)
    if (type === 'cgroup' && controllers.length === 0) return []
    const path = ownPath(own, type === 'cgroup2' ? '' : (controllers[0] ?? ''))
    if (path === undefined) return []
    const below = path.startsWith(root) ? path.slice(root === '/' ? 0 : root.length) : '/'
    const folder = join(mount, below).replace(/\/$/, '')
    return [{ folder, top: mount, version: type === 'cgroup2' ? 2 : 1, controllers }]
  })
}

/** A line of /proc/self/cgroup: 'id:controllers:path'. */
function ownPath(own: string, controller: string): string | undefined {
  for (const line of own.split('\n')) {
    const [, controllers = '', ...path] = line.split(':')
    if (path.length > 0 && controllers.split(',').includes(controller)) return path.join(':')
  }
  return undefined
}

/** The places that work here, one a controller at most; what another parent that is gone left in them is removed. */
export function findCgroups(sources: CgroupSources): Home[] {
  const places: Home[] = []
  const has = (controller: Controller): boolean =>
    places.some(({ controllers }) => controllers.includes(controller))
  for (const hierarchy of hierarchies(sources)) {
    const place =
      hierarchy.version === 1 ? placeV1(hierarchy, sources) : placeV2(hierarchy, sources)
    const controllers = place?.controllers.filter((controller) => !has(controller)) ?? []
    if (place !== undefined && controllers.length > 0) places.push({ ...place, controllers })
  }
  return places
}

function placeV1(hierarchy: Hierarchy, sources: CgroupSources): Home | undefined {
  const folder = makeHome(hierarchy.folder, sources.owner)
  return folder === undefined
    ? undefined
    : { folder, controllers: hierarchy.controllers, dialect: cgroupV1 }
}

function placeV2(hierarchy: Hierarchy, sources: CgroupSources): Home | undefined {
  const bases = [
    ...(isAlone(hierarchy.folder, sources.owner) ? [hierarchy.folder] : []),
    ...(sources.privileged ? [hierarchy.top] : []),
  ]
  for (const base of bases) {
    const controllers = giveDown(base, sources.owner)
    const folder = controllers.length === 0 ? undefined : makeHome(base, sources.owner)
    if (folder === undefined) continue
    for (const controller of controllers) tryWrite(join(folder, SUBTREE), `+${controller}`)
    return { folder, controllers, dialect: cgroupV2 }
  }
  return undefined
}

const SUBTREE = 'cgroup.subtree_control'

const tryWrite = (path: string, text: string): boolean => {
  try {
    writeFileSync(path, text)
    return true
  } catch {
    return false
  }
}

const tryRead = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '')

/** Whether nobody but this process is in the cgroup; at the top of a hierarchy processes do not matter. */
const isAlone = (folder: string, { pid }: Owner): boolean =>
  words(tryRead(join(folder, 'cgroup.procs'))).join() === String(pid)

/** Gives `base`'s controllers to what is below it. Returns those that are given. */
function giveDown(base: string, owner: Owner): Controller[] {
  const offered = words(tryRead(join(base, 'cgroup.controllers'))).filter(isController)
  const given = (): Controller[] =>
    words(tryRead(join(base, SUBTREE)))
      .filter(isController)
      .filter((controller) => offered.includes(controller))
  if (given().length === offered.length) return given()
  if (isAlone(base, owner)) {
    tryMake(join(base, LEAF))
    tryWrite(join(base, LEAF, 'cgroup.procs'), String(owner.pid))
  }
  for (const controller of offered) tryWrite(join(base, SUBTREE), `+${controller}`)
  return given()
}

function tryMake(folder: string): boolean {
  try {
    mkdirSync(folder)
    return true
  } catch {
    return false
  }
}

/** The folder of this jail's slots, after removing those of parents that are gone. Undefined: not allowed. */
function makeHome(base: string, owner: Owner): string | undefined {
  for (const name of listOr(base)) {
    const other = name.startsWith(PREFIX) ? parseOwner(name.slice(PREFIX.length)) : undefined
    if (other === undefined || isRunning(other)) continue
    killInside(join(base, name))
    removeCgroup(join(base, name))
  }
  // A program may open more than one jail.
  for (let number = 1; number < 1000; number++) {
    const folder = join(base, `${PREFIX}${ownerName(owner)}-${number}`)
    if (tryMake(folder)) return folder
    if (!isFolder(folder)) return undefined
  }
  return undefined
}

/** A child that was being started when its parent was killed may wait there for ever. */
function killInside(folder: string): void {
  for (const name of listOr(folder))
    for (const pid of words(tryRead(join(folder, name, 'cgroup.procs'))).map(Number))
      try {
        // 0: a process of another pid namespace, and no business of ours.
        if (pid > 0) process.kill(pid, 'SIGKILL')
      } catch {
        // It has ended, or is not ours.
      }
}

const isFolder = (path: string): boolean =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory() === true

const listOr = (folder: string): string[] => {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

// The command line that starts a child inside its layers. Pure: what is at hand was found out before (open-jail.ts).
// 1. Order: join the cgroups while still allowed to, then limits, then the uid and no way back, then the namespaces,
//    and the filter of system calls last, by bubblewrap, right before the child's own program.
// 2. The kernel ends the child with the thread that started it (PR_SET_PDEATHSIG), however that ends: start
//    children from the main thread.
// 3. Resource limits are backstops: the guest's own memory is capped inside its modules.
import type { Layer } from '#wasm/jail/layers.ts'

const SHELL = '/bin/sh'
const BASH = '/bin/bash'
const PRLIMIT = '/usr/bin/prlimit'
const SETPRIV = '/usr/bin/setpriv'

/** Where the Node binary is seen from inside. */
export const NODE_INSIDE = '/node'

export type Limits = {
  /** Private writable memory, Node's own included. */
  dataBytes: number
  stackBytes: number
  /** Open descriptors. */
  filesMax: number
  /** Threads, with a uid or a cgroup of the child's own. */
  tasksMax: number
}

/** What bubblewrap shows of the machine. */
export type View = {
  /** Path of the bubblewrap binary. */
  bubblewrap: string
  /** [path outside, path inside] of the libraries of the Node binary. */
  libraries: readonly (readonly [string, string])[]
  /** What is given as an open descriptor: where it is seen inside. The Node binary is the first. */
  opened: readonly { fd: number; inside: string }[]
  /** Descriptor of the program of seccomp-program.ts. */
  filterFd: number | undefined
}

export type Hold = {
  layers: ReadonlySet<Layer>
  limits: Limits
  /** This process is root and can drop capabilities. */
  privileged: boolean
  uid: number | undefined
  view: View | undefined
  /** `cgroup.procs` files. */
  joins: readonly string[]
  /** Descriptors of this process that a child would have too. */
  inherited: readonly number[]
}

/** The argv that runs `node` with `args` inside the layers of `hold`. */
export function jailedCommand(node: string, args: readonly string[], hold: Hold): string[] {
  const { view } = hold
  const program =
    view === undefined ? [node, ...args] : [...bubblewrapped(hold, view, node), ...args]
  return [...joined(hold), ...limited(hold), ...deprived(hold), ...program]
}

/** A shell that moves itself: the child is in its cgroups, and without what we were started with, before it runs. */
function joined({ joins, inherited }: Hold): string[] {
  if (joins.length === 0 && inherited.length === 0) return []
  // The plain shell knows descriptors of one digit only. bash takes a socket as its input for a remote login, and
  // would read its owner's files first; what each sets by itself stays behind.
  const [shell, run] =
    inherited.length > 0
      ? [[BASH, '--norc', '--noprofile'], 'exec -c "$@"']
      : [[SHELL], 'unset PWD OLDPWD; exec "$@"']
  const script =
    'while [ "$1" != -- ]; do echo 0 >"$1" || exit 96; shift; done; shift; ' +
    `while [ "$1" != -- ]; do eval "exec $1>&-"; shift; done; shift; ${run}`
  return [...shell, '-c', script, 'join', ...joins, '--', ...inherited.map(String), '--']
}

function limited({ layers, limits, uid }: Hold): string[] {
  if (!layers.has('limits')) return []
  return [
    PRLIMIT,
    '--core=0',
    '--fsize=0',
    '--memlock=0',
    `--nofile=${limits.filesMax}`,
    `--data=${limits.dataBytes}`,
    `--stack=${limits.stackBytes}`,
    // Counted by uid: an ordinary user's other processes would count too.
    ...(uid === undefined ? [] : [`--nproc=${limits.tasksMax}`]),
    '--',
  ]
}

function deprived({ layers, privileged, uid, view }: Hold): string[] {
  const parent = layers.has('parent') ? ['--pdeathsig', 'KILL'] : []
  // Root that stays root needs this one to map itself; bubblewrap drops it.
  const mapping = uid === undefined && view !== undefined ? ',+setfcap' : ''
  const capabilities = privileged ? ['--inh-caps=-all', `--bounding-set=-all${mapping}`] : []
  const privileges = layers.has('privileges') ? ['--no-new-privs', ...capabilities] : []
  const user = uid === undefined ? [] : [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups']
  const all = [...user, ...parent, ...privileges]
  return all.length === 0 ? [] : [SETPRIV, ...all, '--']
}

function bubblewrapped({ layers }: Hold, view: View, node: string): string[] {
  const on = (layer: Layer, ...flags: string[]): string[] => (layers.has(layer) ? flags : [])
  const root = layers.has('files')
    ? [
        ...view.opened.flatMap(({ fd, inside }) => ['--ro-bind-fd', String(fd), inside]),
        ...view.libraries.flatMap(([outside, inside]) => ['--ro-bind', outside, inside]),
        '--remount-ro',
        '/',
      ]
    : ['--bind', '/', '/']
  return [
    view.bubblewrap,
    '--unshare-user',
    ...on('network', '--unshare-net'),
    ...on('processes', '--unshare-pid', '--as-pid-1', '--unshare-ipc', '--unshare-cgroup-try'),
    ...on('processes', '--unshare-uts', '--hostname', 'guest'),
    ...on('parent', '--die-with-parent'),
    ...on('privileges', '--cap-drop', 'ALL'),
    ...on('environment', '--clearenv'),
    ...root,
    ...(view.filterFd === undefined ? [] : ['--seccomp', String(view.filterFd)]),
    '--',
    layers.has('files') ? NODE_INSIDE : node,
  ]
}

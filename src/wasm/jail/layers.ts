// The layers of the jail, each by what it alone takes away. Outside tests all of them are on, as far as the machine
// and the user give them.

export const LAYERS = [
  /** A user id of the child's own, from a range; needs root. */
  'own-uid',
  /** bubblewrap: a read-only root with nothing in it but the Node binary and its libraries. */
  'files',
  /** bubblewrap: a network namespace without a way out. */
  'network',
  /** bubblewrap: its own process, IPC, host name and cgroup namespaces; no /proc. */
  'processes',
  /** The table of system calls; bubblewrap loads it. */
  'seccomp',
  /** A setuid program gives it nothing; and it holds no capability. */
  'privileges',
  /** Death with its parent. */
  'parent',
  /** No variable, and no descriptor that this program was started with. */
  'environment',
  /** Resource limits: files, descriptors, private memory, stack; threads, with a uid of its own. */
  'limits',
  'cgroup-cpu',
  'cgroup-memory',
  'cgroup-pids',
] as const

export type Layer = (typeof LAYERS)[number]

/** What a manifest lists as missing. These names are stored: do not change them. */
export const ALL_MISSING = [
  'own-uid',
  'bubblewrap',
  'seccomp',
  'cgroup-cpu',
  'cgroup-memory',
  'cgroup-pids',
] as const

export type Missing = (typeof ALL_MISSING)[number]

export const CGROUP_LAYERS = ['cgroup-cpu', 'cgroup-memory', 'cgroup-pids'] as const

/** Layers that bubblewrap makes: without it they are gone together. */
export const BY_BUBBLEWRAP: readonly Layer[] = ['files', 'network', 'processes', 'seccomp']

export const LAYERS_OF: Record<Missing, readonly Layer[]> = {
  'own-uid': ['own-uid'],
  bubblewrap: BY_BUBBLEWRAP,
  seccomp: ['seccomp'],
  'cgroup-cpu': ['cgroup-cpu'],
  'cgroup-memory': ['cgroup-memory'],
  'cgroup-pids': ['cgroup-pids'],
}

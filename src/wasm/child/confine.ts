// The one place that says how a child is held. Everything that runs foreign bytes starts through it.
// 1. The kernel ends the child with the thread that started it (PR_SET_PDEATHSIG), however that ends: start
//    children from the main thread.
// 2. No new privileges; as root, no capabilities either.
// 3. Resource limits are backstops: the guest's own memory is capped inside its modules.

const PRLIMIT = '/usr/bin/prlimit'
const SETPRIV = '/usr/bin/setpriv'

export type Limits = {
  /** Private writable memory, Node's own included. */
  dataBytes: number
  stackBytes: number
  /** Open descriptors. */
  filesMax: number
}

/** The argv that runs `argv` confined. `privileged`: this process is root and can drop capabilities. */
export function confine(argv: string[], limits: Limits, privileged: boolean): string[] {
  const capabilities = privileged ? ['--inh-caps=-all', '--bounding-set=-all'] : []
  return [
    PRLIMIT,
    '--core=0',
    '--fsize=0',
    '--memlock=0',
    `--nofile=${limits.filesMax}`,
    `--data=${limits.dataBytes}`,
    `--stack=${limits.stackBytes}`,
    '--',
    SETPRIV,
    '--pdeathsig',
    'KILL',
    '--no-new-privs',
    ...capabilities,
    '--',
    ...argv,
  ]
}

// The system calls that a child is left with: what Node 26 and its libraries make to start, to compile and run
// WebAssembly, and to serve two pipes (traced). To the child the kernel knows no others: ENOSYS, which libraries take
// as an older kernel and cope with. There is no call that opens a socket, starts a process, signals another one,
// mounts, traces, loads a module or enters a namespace.

export type Arch = 'x64' | 'arm64'

/** `args`: allowed only as the rule of that name says (seccomp-program.ts), else EPERM. */
export type Rule = 'thread' | 'readLimit' | 'terminal' | 'ownName'

type Call = {
  name: string
  /** Null: the architecture has no such call. */
  x64: number | null
  arm64: number | null
  args?: Rule
}

const rows: [string, number | null, number | null, Rule?][] = [
  // Files that are there: the mounts decide which, all of them read-only.
  ['read', 0, 63],
  ['write', 1, 64],
  ['readv', 19, 65],
  ['writev', 20, 66],
  ['pread64', 17, 67],
  ['open', 2, null],
  ['openat', 257, 56],
  ['close', 3, 57],
  ['stat', 4, null],
  ['lstat', 6, null],
  ['fstat', 5, 80],
  ['newfstatat', 262, 79],
  ['statx', 332, 291],
  ['lseek', 8, 62],
  ['access', 21, null],
  ['faccessat', 269, 48],
  ['faccessat2', 439, 439],
  ['readlink', 89, null],
  ['readlinkat', 267, 78],
  ['getdents64', 217, 61],
  ['getcwd', 79, 17],
  ['fcntl', 72, 25],
  ['ioctl', 16, 29, 'terminal'],
  // Memory: V8 maps what it compiles.
  ['mmap', 9, 222],
  ['mprotect', 10, 226],
  ['munmap', 11, 215],
  ['mremap', 25, 216],
  ['madvise', 28, 233],
  ['brk', 12, 214],
  ['membarrier', 324, 283],
  // Threads of this process, and its own signals.
  ['clone', 56, 220, 'thread'],
  ['futex', 202, 98],
  ['set_tid_address', 218, 96],
  ['set_robust_list', 273, 99],
  ['rseq', 334, 293],
  ['arch_prctl', 158, null],
  ['prctl', 157, 167, 'ownName'],
  ['sched_yield', 24, 124],
  ['sched_getaffinity', 204, 123],
  ['sched_getparam', 143, 121],
  ['sched_getscheduler', 145, 120],
  ['rt_sigaction', 13, 134],
  ['rt_sigprocmask', 14, 135],
  ['rt_sigreturn', 15, 139],
  ['sigaltstack', 131, 132],
  ['restart_syscall', 219, 128],
  // `abort` ends its own process by it; no other process is in sight.
  ['tgkill', 234, 131],
  ['exit', 60, 93],
  ['exit_group', 231, 94],
  // The child itself is started by it, once; later there is one program in sight, its own.
  ['execve', 59, 221],
  // The event loop.
  ['epoll_create1', 291, 20],
  ['epoll_ctl', 233, 21],
  ['epoll_wait', 232, null],
  ['epoll_pwait', 281, 22],
  ['epoll_pwait2', 441, 441],
  ['eventfd2', 290, 19],
  ['pipe2', 293, 59],
  ['poll', 7, null],
  ['ppoll', 271, 73],
  ['getsockname', 51, 204],
  ['getsockopt', 55, 209],
  // Time, chance and what a process may know of itself.
  ['clock_gettime', 228, 113],
  ['clock_getres', 229, 114],
  ['clock_nanosleep', 230, 115],
  ['nanosleep', 35, 101],
  ['gettimeofday', 96, 169],
  ['getrandom', 318, 278],
  ['getpid', 39, 172],
  ['gettid', 186, 178],
  ['getuid', 102, 174],
  ['geteuid', 107, 175],
  ['getgid', 104, 176],
  ['getegid', 108, 177],
  ['capget', 125, 90],
  ['getrlimit', 97, 163],
  ['prlimit64', 302, 261, 'readLimit'],
  ['getrusage', 98, 165],
  ['sysinfo', 99, 179],
  ['uname', 63, 160],
]

export const ALLOWED: readonly Call[] = rows.map(([name, x64, arm64, args]) => ({
  name,
  x64,
  arm64,
  ...(args === undefined ? {} : { args }),
}))

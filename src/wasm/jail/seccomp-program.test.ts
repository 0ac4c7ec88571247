// The filter, interpreted: what the kernel would answer to each call, on both architectures.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { seededRandom } from '#lib/random.ts'
import { ALLOWED, type Arch } from '#wasm/jail/seccomp-calls.ts'
import { AUDIT_ARCH, RETURNS, seccompProgram } from '#wasm/jail/seccomp-program.ts'

type Call = { nr: number; arch?: number; args?: bigint[] }

/** A classic BPF machine, as small as the filter needs it: it throws on any instruction it does not know. */
function answer(program: Uint8Array, { nr, arch = 0, args = [] }: Call): number {
  const data = new DataView(new ArrayBuffer(64))
  data.setInt32(0, nr, true)
  data.setUint32(4, arch, true)
  for (const [index, value] of args.entries()) data.setBigUint64(16 + 8 * index, value, true)
  const code = new DataView(program.buffer)
  let accumulator = 0
  for (let at = 0; ; at++) {
    assert.ok(at * 8 < program.length, 'the program runs past its end')
    const k = code.getUint32(at * 8 + 4, true)
    const jump = (taken: boolean): number => code.getUint8(at * 8 + (taken ? 2 : 3))
    const instruction = code.getUint16(at * 8, true)
    if (instruction === 0x06) return k
    if (instruction === 0x20) accumulator = data.getUint32(k, true)
    else if (instruction === 0x15) at += jump(accumulator === k)
    else if (instruction === 0x35) at += jump(accumulator >= k)
    else if (instruction === 0x45) at += jump((accumulator & k) !== 0)
    else assert.fail(`unknown instruction ${instruction}`)
  }
}

/** [x86-64, arm64] numbers of what must never work. */
const REFUSED: Record<string, [number | null, number | null]> = {
  socket: [41, 198],
  socketpair: [53, 199],
  connect: [42, 203],
  bind: [49, 200],
  sendmsg: [46, 211],
  recvmsg: [47, 212],
  fork: [57, null],
  vfork: [58, null],
  clone3: [435, 435],
  execveat: [322, 281],
  kill: [62, 129],
  tkill: [200, 130],
  rt_sigqueueinfo: [129, 138],
  pidfd_open: [434, 434],
  pidfd_send_signal: [424, 424],
  pidfd_getfd: [438, 438],
  ptrace: [101, 117],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  process_madvise: [440, 440],
  kcmp: [312, 272],
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsmount: [432, 432],
  mount_setattr: [442, 442],
  unshare: [272, 97],
  setns: [308, 268],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  open_by_handle_at: [304, 265],
  name_to_handle_at: [303, 264],
  fanotify_init: [300, 262],
  personality: [135, 92],
  swapon: [167, 224],
  swapoff: [168, 225],
  reboot: [169, 142],
  quotactl: [179, 60],
  acct: [163, 89],
  seccomp: [317, 277],
  memfd_create: [319, 279],
  memfd_secret: [447, 447],
  landlock_create_ruleset: [444, 444],
  setuid: [105, 146],
  setgid: [106, 144],
  setgroups: [116, 159],
  capset: [126, 91],
  setrlimit: [160, 164],
  sched_setscheduler: [144, 119],
  sched_setaffinity: [203, 122],
  setpriority: [141, 140],
  settimeofday: [164, 170],
  adjtimex: [159, 171],
  sethostname: [170, 161],
  syslog: [103, 116],
  shmget: [29, 194],
  shmat: [30, 196],
  semget: [64, 190],
  msgget: [68, 186],
  mq_open: [240, 180],
  iopl: [172, null],
  ioperm: [173, null],
  modify_ldt: [154, null],
  unlink: [87, null],
  unlinkat: [263, 35],
  mkdir: [83, null],
  mkdirat: [258, 34],
  renameat2: [316, 276],
  symlinkat: [266, 36],
  linkat: [265, 37],
  mknodat: [259, 33],
  fchmodat: [268, 53],
  fchownat: [260, 54],
  ftruncate: [77, 46],
  fallocate: [285, 47],
  utimensat: [280, 88],
  inotify_init1: [294, 26],
  timer_create: [222, 107],
  vmsplice: [278, 75],
  splice: [275, 76],
  lookup_dcookie: [212, 18],
  'a call of the future': [9_999, 9_999],
}

for (const arch of ['x64', 'arm64'] as const satisfies Arch[]) {
  const program = seccompProgram(arch) ?? assert.fail('a program')
  const native = { arch: AUDIT_ARCH[arch] }
  const ask = (name: string, ...args: bigint[]): number => {
    const nr = ALLOWED.find((call) => call.name === name)?.[arch] ?? assert.fail(name)
    return answer(program, { ...native, nr, args })
  }

  test(`FN-4 ${arch}: what a hostile child would call is unknown to its kernel`, () => {
    for (const [name, [x64, arm64]] of Object.entries(REFUSED)) {
      const nr = arch === 'x64' ? x64 : arm64
      if (nr !== null) assert.equal(answer(program, { ...native, nr }), RETURNS.unknown, name)
    }
  })

  test(`FN-4 ${arch}: every call of the table is allowed, and of a thousand numbers nothing else`, () => {
    const table = new Map(ALLOWED.map((call) => [call[arch], call]))
    for (let nr = 0; nr < 1000; nr++) {
      const call = table.get(nr)
      const expected = call === undefined ? RETURNS.unknown : RETURNS.allow
      if (call?.args === undefined)
        assert.equal(answer(program, { ...native, nr }), expected, `${nr} ${call?.name}`)
    }
  })

  test(`FN-4 ${arch}: arguments decide about threads, limits, terminals and names`, () => {
    const pthread = 0x3d0f00n
    assert.equal(ask('clone', pthread), RETURNS.allow)
    // fork, vfork, posix_spawn, and a thread in each new namespace.
    for (const flags of [0x11n, 0x4111n, 0x1200011n, ...NAMESPACES.map((bit) => pthread | bit)])
      assert.equal(ask('clone', flags), RETURNS.refused, flags.toString(16))
    assert.equal(ask('prlimit64', 0n, 7n, 0n, 0x7fff_0000_1234n), RETURNS.allow)
    assert.equal(ask('prlimit64', 0n, 7n, 0x7fff_0000_0000n, 0n), RETURNS.refused)
    assert.equal(ask('prlimit64', 0n, 7n, 0x10n, 0n), RETURNS.refused)
    assert.equal(ask('prlimit64', 4n, 7n, 0n, 0n), RETURNS.refused)
    assert.equal(ask('ioctl', 0n, 0x5401n), RETURNS.allow)
    // TIOCSTI, TIOCLINUX
    for (const request of [0x5412n, 0x541cn, 0n])
      assert.equal(ask('ioctl', 0n, request), RETURNS.refused)
    assert.equal(ask('prctl', 15n), RETURNS.allow)
    // PDEATHSIG, DUMPABLE, SECCOMP, CAPBSET_DROP, SECUREBITS, NO_NEW_PRIVS, MM, PTRACER
    for (const option of [1n, 4n, 22n, 24n, 28n, 38n, 35n, 0x59616d61n])
      assert.equal(ask('prctl', option), RETURNS.refused, String(option))
  })

  test(`FN-4 ${arch}: a call of another architecture ends the process`, () => {
    for (const other of [0x4000_0003, 0x4000_0028, 0xc000_003e, 0xc000_00b7, 0])
      if (other !== AUDIT_ARCH[arch])
        assert.equal(answer(program, { nr: 0, arch: other }), RETURNS.kill)
  })

  test(`FN-4 ${arch}: whatever is called, the program answers, within what the kernel takes`, () => {
    const seed = `filter-${arch}`
    const random = seededRandom(seed)
    assert.ok(program.length / 8 <= 4096, 'BPF_MAXINSNS')
    const answers = new Set<number>(Object.values(RETURNS))
    for (let i = 0; i < 5000; i++) {
      const args = Array.from({ length: 6 }, () => BigInt(random.below(2 ** 31)))
      const nr = random.below(2) === 0 ? random.below(500) : random.below(2 ** 31)
      assert.ok(answers.has(answer(program, { ...native, nr, args })), `seed ${seed}, call ${nr}`)
    }
  })
}

const NAMESPACES = [
  0x0002_0000n,
  0x0200_0000n,
  0x0400_0000n,
  0x0800_0000n,
  0x1000_0000n,
  0x2000_0000n,
  0x4000_0000n,
]

test('FN-4 x64: calls of x32 end the process', () => {
  const program = seccompProgram('x64') ?? assert.fail('a program')
  for (const nr of [0x4000_0000, 0x4000_0000 + 59, 0xffff_ffff])
    assert.equal(answer(program, { nr, arch: AUDIT_ARCH.x64 }), RETURNS.kill)
})

test('FN-4 an architecture without a table has no program', () => {
  assert.equal(seccompProgram('riscv64'), undefined)
})

// The seccomp filter as a classic BPF program (linux/filter.h, linux/seccomp.h), in the form that bubblewrap's
// --seccomp reads: an array of struct sock_filter { u16 code; u8 jt; u8 jf; u32 k }, little-endian.
// 1. A call of another architecture (32-bit, x32) ends the process: its numbers mean other calls.
// 2. Only what the table allows returns ALLOW; the end of the program is ENOSYS.
// 3. Jumps stay inside one call's block, so the table may grow as it likes.
import { ALLOWED, type Arch, type Rule } from '#wasm/jail/seccomp-calls.ts'

type Instruction = { code: number; jt: number; jf: number; k: number }

const LOAD_WORD = 0x20
const JUMP_EQUAL = 0x15
const JUMP_AT_LEAST = 0x35
const JUMP_ANY_BIT = 0x45
const RETURN = 0x06

/** struct seccomp_data { int nr; u32 arch; u64 instruction_pointer; u64 args[6] }; both are little-endian. */
const AT_NUMBER = 0
const AT_ARCH = 4
const argLow = (index: number): number => 16 + 8 * index
const argHigh = (index: number): number => argLow(index) + 4

export const RETURNS = {
  allow: 0x7fff_0000,
  /** EPERM: the call exists, these arguments do not. */
  refused: 0x0005_0000 | 1,
  /** ENOSYS */
  unknown: 0x0005_0000 | 38,
  kill: 0x8000_0000,
} as const

/** AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 */
export const AUDIT_ARCH: Record<Arch, number> = { x64: 0xc000_003e, arm64: 0xc000_00b7 }

/** Numbers from here on are x32's. */
const X32_BIT = 0x4000_0000

const CLONE_THREAD = 0x0001_0000
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET */
const CLONE_NAMESPACES = 0x7e02_0000
/** TCGETS, TIOCGWINSZ, FIONBIO, FIOCLEX */
const TERMINAL_REQUESTS = [0x5401, 0x5413, 0x5421, 0x5451]
/** PR_SET_NAME, PR_GET_NAME, PR_SET_VMA: names for debuggers. */
const NAMING = [15, 16, 0x5356_4d41]

const load = (k: number): Instruction => ({ code: LOAD_WORD, jt: 0, jf: 0, k })
const end = (k: number): Instruction => ({ code: RETURN, jt: 0, jf: 0, k })
const jump = (code: number, k: number, jt: number, jf: number): Instruction => ({ code, jt, jf, k })

const allow = end(RETURNS.allow)
const refuse = end(RETURNS.refused)

/** ALLOW when the loaded word is one of `values`, else EPERM. */
const oneOf = (values: readonly number[]): Instruction[] => [
  ...values.flatMap((value) => [jump(JUMP_EQUAL, value, 0, 1), allow]),
  refuse,
]

const RULES: Record<Rule, Instruction[]> = {
  thread: [
    load(argLow(0)),
    jump(JUMP_ANY_BIT, CLONE_NAMESPACES, 0, 1),
    refuse,
    jump(JUMP_ANY_BIT, CLONE_THREAD, 0, 1),
    allow,
    refuse,
  ],
  // prlimit64(pid 0, resource, new NULL, old): a process that asks for its own limits.
  readLimit: [
    ...[argLow(0), argLow(2), argHigh(2)].flatMap((at) => [
      load(at),
      jump(JUMP_EQUAL, 0, 1, 0),
      refuse,
    ]),
    allow,
  ],
  terminal: [load(argLow(1)), ...oneOf(TERMINAL_REQUESTS)],
  ownName: [load(argLow(0)), ...oneOf(NAMING)],
}

export function instructions(arch: Arch): Instruction[] {
  const calls = ALLOWED.flatMap((call) => {
    const number = call[arch]
    if (number === null) return []
    // Every path through `block` returns, so the accumulator still holds the number after it.
    const block = call.args === undefined ? [allow] : RULES[call.args]
    return [jump(JUMP_EQUAL, number, 0, block.length), ...block]
  })
  return [
    load(AT_ARCH),
    jump(JUMP_EQUAL, AUDIT_ARCH[arch], 1, 0),
    end(RETURNS.kill),
    load(AT_NUMBER),
    ...(arch === 'x64' ? [jump(JUMP_AT_LEAST, X32_BIT, 0, 1), end(RETURNS.kill)] : []),
    ...calls,
    end(RETURNS.unknown),
  ]
}

/** The program's bytes. Undefined: there is no table for this architecture. */
export function seccompProgram(arch: string): Uint8Array | undefined {
  if (arch !== 'x64' && arch !== 'arm64') return undefined
  const program = instructions(arch)
  const bytes = new Uint8Array(program.length * 8)
  const view = new DataView(bytes.buffer)
  for (const [index, { code, jt, jf, k }] of program.entries()) {
    view.setUint16(index * 8, code, true)
    view.setUint8(index * 8 + 2, jt)
    view.setUint8(index * 8 + 3, jf)
    view.setUint32(index * 8 + 4, k, true)
  }
  return bytes
}

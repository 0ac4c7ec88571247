// The table of opcodes as arrays, indexed by one number an instruction, and steps over what follows an opcode.
// 1. An opcode without an entry is refused by name, as far as it has one, and offset.
import {
  type Cursor,
  count,
  malformed,
  refuse,
  skip,
  skipLeb,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'
import { ATOMIC, MISCELLANEOUS, ONE_BYTE, SPECIAL, VECTOR } from '#wasm/meter/opcodes.ts'

/** What follows an opcode in the binary. */
export const IMMEDIATE = {
  none: 0,
  index: 1,
  indexes: 2,
  memory: 3,
  memoryLane: 4,
  byte: 5,
  bytes4: 6,
  bytes8: 7,
  bytes16: 8,
  leb32: 9,
  leb64: 10,
  types: 11,
  block: 12,
  labels: 13,
  catches: 14,
} as const

/** What the walk does at an instruction. `plain`: only its stack effect counts. */
export const ACT = {
  refused: 0,
  plain: 1,
  unreachable: 2,
  block: 3,
  loop: 4,
  if: 5,
  else: 6,
  try: 7,
  catch: 8,
  catchAll: 9,
  delegate: 10,
  tryTable: 11,
  end: 12,
  throw: 13,
  throwAny: 14,
  branch: 15,
  branchIf: 16,
  branchTable: 17,
  branchOnNull: 18,
  branchOnNonNull: 19,
  return: 20,
  call: 21,
  callIndirect: 22,
  callRef: 23,
  tailCall: 24,
  tailCallIndirect: 25,
  tailCallRef: 26,
  global: 27,
  memoryGrow: 28,
  tableGrow: 29,
  bytes: 30,
  elements: 31,
} as const

/** What an instruction does with the bits of floats. */
export const FLOAT = {
  /** Its operands' bits show in its result, or leave the stack. */
  observes: 0,
  /** Its result is the same for every NaN. */
  ignores: 1,
  /** The operand comes out with its payload. */
  passes: 2,
  f32: 3,
  f64: 4,
  f32x4: 5,
  f64x2: 6,
} as const

/** Where the codes after each prefix begin in the arrays; none has more than a page of them. */
const PAGE = 0x200
const PREFIXES: Readonly<Record<number, number>> = { 0xfc: PAGE, 0xfd: 2 * PAGE, 0xfe: 3 * PAGE }
const CODES = 4 * PAGE

/** By instruction number: what the walk does, what follows, how much it pops and pushes, what it does to floats. */
export const ACTS = new Uint8Array(CODES)
export const IMMEDIATES = new Uint8Array(CODES)
export const POPS = new Uint8Array(CODES)
export const PUSHES = new Uint8Array(CODES)
export const FLOATS = new Uint8Array(CODES)
export const FUEL = new Uint8Array(CODES).fill(1)
/** 'ii:i' */
export const SIGNATURES: (string | undefined)[] = []
export const NAMES: (string | undefined)[] = []

/** `0xfc_08` names code 8 after prefix 0xfc; a code without prefix is itself. */
export const numberOf = (code: number): number =>
  code < 0x100 ? code : (PREFIXES[code >> 8] ?? 0) + (code & 0xff)

const isKey = <T extends object>(table: T, key: string): key is keyof T & string =>
  Object.hasOwn(table, key)

function addLine(line: string, page: number): void {
  const [first = '', immediate = '', signature = '', prefix = '', ...names] = line.split(' ')
  names.forEach((name, i) => {
    const at = page + Number.parseInt(first, 16) + i
    const [operands = '', results = ''] = signature.split(':')
    ACTS[at] = ACT.plain
    IMMEDIATES[at] = isKey(IMMEDIATE, immediate) ? IMMEDIATE[immediate] : IMMEDIATE.none
    POPS[at] = operands.length
    PUSHES[at] = results.length
    SIGNATURES[at] = signature
    NAMES[at] = prefix === '-' ? name : prefix + name
  })
}

/** Arithmetic whose NaN may differ between machines. */
const ARITHMETIC =
  /^(f32x4|f64x2|f32|f64)\.(ceil|floor|trunc|nearest|sqrt|add|sub|mul|div|min|max|demote\w*|promote\w*)$/
/** Comparisons and conversions to integers see that a NaN is one, and no more. */
const IGNORES = /^(f32|f64)\.(eq|ne|lt|gt|le|ge)$|^i(32|64)\.trunc_(sat_)?f|^drop$/
const PASSES = /^(f32|f64)\.(abs|neg)$/

function floatOf(name: string): number {
  const kind = ARITHMETIC.exec(name)?.[1]
  if (kind !== undefined && isKey(FLOAT, kind)) return FLOAT[kind]
  if (IGNORES.test(name)) return FLOAT.ignores
  return PASSES.test(name) ? FLOAT.passes : FLOAT.observes
}

/** Fuel schedule 1: each instruction costs 1, but for these; the last three are marks that nothing executes. */
const FREE = (
  'unreachable nop block loop else end return drop ' + 'catch catch_all delegate'
).split(' ')

function build(): void {
  const pages: [string, number][] = [
    [ONE_BYTE, 0],
    [MISCELLANEOUS, PAGE],
    [VECTOR, 2 * PAGE],
    [ATOMIC, 3 * PAGE],
  ]
  for (const [lines, page] of pages)
    for (const line of lines.trim().split('\n')) addLine(line, page)
  for (const [code, act, immediate, name] of SPECIAL) {
    const at = numberOf(code)
    ACTS[at] = ACT[act]
    IMMEDIATES[at] = IMMEDIATE[immediate]
    NAMES[at] = name
  }
  NAMES.forEach((name, at) => {
    if (name === undefined) return
    FLOATS[at] = floatOf(name)
    if (FREE.includes(name)) FUEL[at] = 0
  })
}
build()

/** Instructions of garbage-collected types, for the refusal. */
const COLLECTED = (
  'struct.new struct.new_default struct.get struct.get_s struct.get_u struct.set array.new array.new_default ' +
  'array.new_fixed array.new_data array.new_elem array.get array.get_s array.get_u array.set array.len array.fill ' +
  'array.copy array.init_data array.init_elem ref.test ref.test_null ref.cast ref.cast_null br_on_cast ' +
  'br_on_cast_fail any.convert_extern extern.convert_any ref.i31 i31.get_s i31.get_u'
).split(' ')

function refusal(cursor: Cursor, at: number): Error {
  const first = cursor.bytes[at] ?? 0
  const prefixed = first >= 0xfb && first <= 0xfe
  const code = prefixed ? ` ${u32({ ...cursor, at: at + 1 })}` : ''
  const name = first === 0xfb ? COLLECTED[Number(code)] : undefined
  return refuse(
    'UNSUPPORTED_INSTRUCTION',
    `the code uses instruction 0x${first.toString(16)}${code}${name === undefined ? '' : ` (${name})`} ` +
      `at byte ${at}, which this version cannot follow`,
    'build without garbage-collected types and other proposals past WebAssembly 2.0',
  )
}

/** Reads an opcode and returns its instruction number. Refuses UNSUPPORTED_INSTRUCTION. */
export function readOpcode(cursor: Cursor): number {
  const at = cursor.at
  const first = u8(cursor)
  if (first < 0xfb) {
    if (ACTS[first] === ACT.refused) throw refusal(cursor, at)
    return first
  }
  const page = PREFIXES[first]
  if (page === undefined) throw refusal(cursor, at)
  const code = u32(cursor)
  if (code >= PAGE || ACTS[page + code] === ACT.refused) throw refusal(cursor, at)
  return page + code
}

/** Bit 6 of the alignment says that a memory index follows (multi-memory). */
function skipMemoryArgument(cursor: Cursor): void {
  if (u32(cursor) & 0x40) u32(cursor)
  skipLeb(cursor, 10)
}

/** The value type, or the type index, of a block. */
export function skipBlockType(cursor: Cursor): void {
  const first = cursor.bytes[cursor.at]
  if (first === 0x63 || first === 0x64) skipValueType(cursor)
  else skipLeb(cursor, 5)
}

function skipCatches(cursor: Cursor): void {
  skipBlockType(cursor)
  for (let left = count(cursor); left > 0; left--) {
    if (u8(cursor) <= 0x01) u32(cursor)
    u32(cursor)
  }
}

const STEPS: readonly ((cursor: Cursor) => void)[] = [
  () => {},
  u32,
  (cursor) => {
    u32(cursor)
    u32(cursor)
  },
  skipMemoryArgument,
  (cursor) => {
    skipMemoryArgument(cursor)
    u8(cursor)
  },
  u8,
  (cursor) => skip(cursor, 4),
  (cursor) => skip(cursor, 8),
  (cursor) => skip(cursor, 16),
  (cursor) => skipLeb(cursor, 5),
  (cursor) => skipLeb(cursor, 10),
  (cursor) => {
    for (let left = count(cursor); left > 0; left--) skipValueType(cursor)
  },
  skipBlockType,
  (cursor) => {
    for (let left = count(cursor); left >= 0; left--) u32(cursor)
  },
  skipCatches,
]

/** Steps over what follows the opcode of `instruction`. */
export function skipImmediates(cursor: Cursor, instruction: number): void {
  const step = STEPS[IMMEDIATES[instruction] ?? 0]
  if (step === undefined) throw malformed(cursor, 'an instruction of an unknown form')
  step(cursor)
}

// Steps over WASM instructions without decoding more than their length needs: the base of every rewriting of code.
// An opcode that is not listed is refused (fail closed): code that cannot be followed cannot be limited.
// Encoding: WebAssembly core specification 3.0, chapter 5.4, and the legacy exception proposal.
import { type Cursor, count, refuse, skip, skipLeb, u32, u8 } from '#wasm/binary/cursor.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'

type Step = (cursor: Cursor) => void

const none: Step = () => {}
const index: Step = (cursor) => void u32(cursor)
const twoIndexes: Step = (cursor) => {
  u32(cursor)
  u32(cursor)
}
/** An s33: a value type's byte or a type index. */
const blockType: Step = (cursor) => {
  const at = cursor.at
  const first = u8(cursor)
  if (first === 0x63 || first === 0x64) skipLeb(cursor, 5)
  else {
    cursor.at = at
    skipLeb(cursor, 5)
  }
}
const bytes =
  (length: number): Step =>
  (cursor) =>
    skip(cursor, length)
const leb =
  (bytesMax: number): Step =>
  (cursor) =>
    skipLeb(cursor, bytesMax)

/** Bit 6 of the alignment says that a memory index follows (multi-memory). */
const memoryArgument: Step = (cursor) => {
  if (u32(cursor) & 0x40) u32(cursor)
  skipLeb(cursor, 10)
}
const memoryArgumentAndLane: Step = (cursor) => {
  memoryArgument(cursor)
  u8(cursor)
}
const branchTable: Step = (cursor) => {
  for (let left = count(cursor); left > 0; left--) u32(cursor)
  u32(cursor)
}
const typedSelect: Step = (cursor) => {
  for (let left = count(cursor); left > 0; left--) skipValueType(cursor)
}
const tryTable: Step = (cursor) => {
  blockType(cursor)
  for (let left = count(cursor); left > 0; left--) {
    if (u8(cursor) <= 0x01) u32(cursor)
    u32(cursor)
  }
}

const table = (...ranges: [from: number, to: number, step: Step][]): (Step | undefined)[] => {
  const steps: (Step | undefined)[] = []
  for (const [from, to, step] of ranges) for (let op = from; op <= to; op++) steps[op] = step
  return steps
}

const ONE_BYTE = table(
  [0x00, 0x01, none], // unreachable, nop
  [0x02, 0x04, blockType],
  [0x05, 0x05, none], // else
  [0x06, 0x06, blockType], // try (legacy)
  [0x07, 0x09, index], // catch, throw, rethrow
  [0x0a, 0x0b, none], // throw_ref, end
  [0x0c, 0x0d, index],
  [0x0e, 0x0e, branchTable],
  [0x0f, 0x0f, none],
  [0x10, 0x10, index],
  [0x11, 0x11, twoIndexes],
  [0x12, 0x12, index],
  [0x13, 0x13, twoIndexes],
  [0x14, 0x15, index], // call_ref, return_call_ref
  [0x18, 0x18, index], // delegate
  [0x19, 0x1b, none], // catch_all, drop, select
  [0x1c, 0x1c, typedSelect],
  [0x1f, 0x1f, tryTable],
  [0x20, 0x26, index],
  [0x28, 0x3e, memoryArgument],
  [0x3f, 0x40, index],
  [0x41, 0x41, leb(5)],
  [0x42, 0x42, leb(10)],
  [0x43, 0x43, bytes(4)],
  [0x44, 0x44, bytes(8)],
  [0x45, 0xc4, none],
  [0xd0, 0xd0, leb(5)], // ref.null
  [0xd1, 0xd1, none],
  [0xd2, 0xd2, index],
  [0xd3, 0xd4, none],
  [0xd5, 0xd6, index],
)

/** After 0xfc: saturating truncations, bulk memory, tables. */
const NUMERIC = table(
  [0, 7, none],
  [8, 8, twoIndexes],
  [9, 9, index],
  [10, 10, twoIndexes],
  [11, 11, index],
  [12, 12, twoIndexes],
  [13, 13, index],
  [14, 14, twoIndexes],
  [15, 17, index],
)

/** After 0xfd: vectors, the relaxed ones included. */
const VECTOR = table(
  [0, 11, memoryArgument],
  [12, 13, bytes(16)],
  [14, 20, none],
  [21, 34, bytes(1)],
  [35, 83, none],
  [84, 91, memoryArgumentAndLane],
  [92, 93, memoryArgument],
  [94, 275, none],
)

/** After 0xfe: atomics, legal on an unshared memory too. */
const ATOMIC = table(
  [0x00, 0x02, memoryArgument],
  [0x03, 0x03, bytes(1)],
  [0x10, 0x4e, memoryArgument],
)

const PREFIXED = new Map([
  [0xfc, NUMERIC],
  [0xfd, VECTOR],
  [0xfe, ATOMIC],
])

const unsupported = (opcode: string, at: number): Error =>
  refuse(
    'UNSUPPORTED_INSTRUCTION',
    `the code uses instruction ${opcode} at byte ${at}, which this version cannot follow`,
    'build without garbage-collected types and other proposals past WebAssembly 2.0',
  )

/** Steps over one instruction and returns its first byte. */
export function stepInstruction(cursor: Cursor): number {
  const at = cursor.at
  const opcode = u8(cursor)
  const prefixed = PREFIXED.get(opcode)
  if (prefixed === undefined) {
    const step = ONE_BYTE[opcode]
    if (step === undefined) throw unsupported(`0x${opcode.toString(16)}`, at)
    step(cursor)
    return opcode
  }
  const sub = u32(cursor)
  const step = prefixed[sub]
  if (step === undefined) throw unsupported(`0x${opcode.toString(16)} ${sub}`, at)
  step(cursor)
  return opcode
}

// Writes one body anew from the list of what changes in it.
// 1. What a body owes stands in a local; it is paid, that is taken from the shared fuel, before a call that may throw or
//    may look at the fuel, and where the function is left. Where it is looked at: gap.ts.
// 2. A body with one charge and no loop pays it at once and has no such local.
// 3. A body that counts keeps the depth it found in a local and gives it back wherever it is left.
// 4. Every insertion leaves the operand stack as it was.
import { cursorOver, refuse, u32 } from '#wasm/binary/cursor.ts'
import type { AddedFunctions } from '#wasm/meter/added-functions.ts'
import { BODY_BYTES_MAX, LOCALS_MAX } from '#wasm/meter/budget.ts'
import { type Out, putByte, putBytes, putRange, putS32, putU32 } from '#wasm/meter/bytes-out.ts'
import { EDIT, type Edits, LEAVE } from '#wasm/meter/edits.ts'
import { BLOCK, F32, F64, I64, OP, V128 } from '#wasm/meter/encoding.ts'
import type { Body } from '#wasm/meter/walk.ts'

/** Indexes that every body refers to. */
export type Shared = {
  fuel: number
  depth: number
  added: AddedFunctions
  /** The index of a type without parameters and with these results. */
  resultsType: (body: Body) => number
}

/** One body's own view. */
type Writing = Shared & {
  out: Out
  body: Body
  /** The local of what is owed; undefined when it is paid at once. */
  owed: number | undefined
  /** The local of the depth it found; undefined when it does not count. */
  found: number | undefined
  /** By EDIT.f32 and its kin: a local that holds a result while it is looked at; undefined: not needed. */
  held: (number | undefined)[]
  wrapped: boolean
}

const get = (out: Out, local: number): void => {
  putByte(out, OP.localGet)
  putU32(out, local)
}
const set = (out: Out, local: number): void => {
  putByte(out, OP.localSet)
  putU32(out, local)
}
const tee = (out: Out, local: number): void => {
  putByte(out, OP.localTee)
  putU32(out, local)
}
const readGlobal = (out: Out, index: number): void => {
  putByte(out, OP.globalGet)
  putU32(out, index)
}
const writeGlobal = (out: Out, index: number): void => {
  putByte(out, OP.globalSet)
  putU32(out, index)
}
const constant = (out: Out, value: number): void => {
  putByte(out, OP.i64Const)
  putS32(out, value)
}

/** Ends the guest when the i64 on the stack is below zero. */
const endIfNegative = (out: Out): void => {
  putBytes(out, [OP.i64Const, 0, OP.i64LtS, OP.if, BLOCK.empty, OP.unreachable, OP.end])
}

function settle({ out, fuel, owed }: Writing): void {
  readGlobal(out, fuel)
  if (owed !== undefined) {
    get(out, owed)
    putByte(out, OP.i64Sub)
    tee(out, owed)
    writeGlobal(out, fuel)
    get(out, owed)
  }
  endIfNegative(out)
  if (owed === undefined) return
  constant(out, 0)
  set(out, owed)
}

function pay({ out, fuel, owed }: Writing): void {
  if (owed === undefined) return
  readGlobal(out, fuel)
  get(out, owed)
  putByte(out, OP.i64Sub)
  writeGlobal(out, fuel)
}

/** Pays in the midst of a body, which goes on owing nothing. */
function payAndGoOn(writing: Writing): void {
  const { out, owed } = writing
  if (owed === undefined) return
  pay(writing)
  constant(out, 0)
  set(out, owed)
}

/** Depth goes down by the frame; spent fuel or depth ends the guest. */
function begin({ out, fuel, depth, found, body }: Writing): void {
  if (found === undefined) return
  readGlobal(out, depth)
  tee(out, found)
  constant(out, body.frameUnits)
  putByte(out, OP.i64Sub)
  writeGlobal(out, depth)
  get(out, found)
  constant(out, body.frameUnits)
  putByte(out, OP.i64Sub)
  readGlobal(out, fuel)
  putByte(out, OP.i64Or)
  endIfNegative(out)
}

function giveDepthBack({ out, depth, found }: Writing): void {
  if (found === undefined) return
  get(out, found)
  writeGlobal(out, depth)
}

function resume({ out, depth, found, body }: Writing): void {
  if (found === undefined) return
  get(out, found)
  constant(out, body.frameUnits)
  putByte(out, OP.i64Sub)
  writeGlobal(out, depth)
}

function charge(writing: Writing, units: number, isFirst: boolean): void {
  const { out, owed, fuel } = writing
  if (units === 0) return
  if (owed === undefined) {
    readGlobal(out, fuel)
    constant(out, units)
    putByte(out, OP.i64Sub)
    return writeGlobal(out, fuel)
  }
  if (!isFirst) get(out, owed)
  constant(out, units)
  if (!isFirst) putByte(out, OP.i64Add)
  set(out, owed)
}

function chargeLoop(writing: Writing, units: number, owedMax: number): void {
  const { out, owed } = writing
  if (owed === undefined) return
  get(out, owed)
  constant(out, units)
  putByte(out, OP.i64Add)
  tee(out, owed)
  constant(out, owedMax)
  putBytes(out, [OP.i64GtS, OP.if, BLOCK.empty])
  settle(writing)
  putByte(out, OP.end)
}

const NAN_32 = [0, 0, 0xc0, 0x7f]
const NAN_64 = [0, 0, 0, 0, 0, 0, 0xf8, 0x7f]

/** By kind: the local's type, the canonical NaN, what is equal to itself unless it is a NaN, what chooses. */
const CANONICAL: Readonly<Record<number, { type: number; nan: number[]; choose: number[] }>> = {
  [EDIT.f32]: { type: F32, nan: [OP.f32Const, ...NAN_32], choose: [OP.f32Eq, OP.select] },
  [EDIT.f64]: { type: F64, nan: [OP.f64Const, ...NAN_64], choose: [OP.f64Eq, OP.select] },
  [EDIT.f32x4]: {
    type: V128,
    nan: [0xfd, 0x0c, ...NAN_32, ...NAN_32, ...NAN_32, ...NAN_32],
    choose: [0xfd, 0x41, 0xfd, 0x52], // f32x4.eq, v128.bitselect
  },
  [EDIT.f64x2]: {
    type: V128,
    nan: [0xfd, 0x0c, ...NAN_64, ...NAN_64],
    choose: [0xfd, 0x47, 0xfd, 0x52], // f64x2.eq, v128.bitselect
  },
}

function canonicalize({ out, held }: Writing, kind: number): void {
  const local = held[kind]
  const how = CANONICAL[kind]
  if (local === undefined || how === undefined) return
  tee(out, local)
  putBytes(out, how.nan)
  get(out, local)
  get(out, local)
  putBytes(out, how.choose)
}

function callAdded(out: Out, index: number): void {
  putByte(out, OP.call)
  putU32(out, index)
}

function writeEdit(writing: Writing, edits: Edits, n: number): void {
  const { out, added } = writing
  const value = edits.value[n] ?? 0
  const kind = edits.kind[n] ?? EDIT.none
  switch (kind) {
    case EDIT.charge:
      return charge(writing, value, n === 1)
    case EDIT.loop:
      return chargeLoop(writing, value, edits.value[n - 1] ?? 0)
    case EDIT.pay:
      return payAndGoOn(writing)
    case EDIT.settle:
      return settle(writing)
    case EDIT.leave:
    case EDIT.end:
      if (kind === EDIT.end && writing.wrapped) putByte(out, OP.end)
      if (value === LEAVE.look && writing.found !== undefined) settle(writing)
      else if (value !== LEAVE.paid) pay(writing)
      return giveDepthBack(writing)
    case EDIT.resume:
      return resume(writing)
    case EDIT.global:
      return putU32(out, value)
    case EDIT.memoryGrow:
      return callAdded(out, added.memoryGrow(value))
    case EDIT.tableGrow:
      return callAdded(out, added.tableGrow(value))
    case EDIT.bytes:
      return callAdded(out, added.bytes())
    case EDIT.elements:
      return callAdded(out, added.elements())
    case EDIT.none:
      return
    default:
      if (value !== 0) canonicalize(writing, kind)
  }
}

/** Whether the body pays each charge at once: it has one at most, and no loop to settle in. */
function paysAtOnce({ found }: Body, { kind, value, count: edits }: Edits): boolean {
  let charges = 0
  for (let n = 1; n < edits; n++) if (kind[n] === EDIT.charge && value[n] !== 0) charges++
  return found.loops === 0 && charges <= 1
}

/** Writes the declared locals with those that metering adds, and says where these stand. */
function writeLocals(out: Out, code: Uint8Array, body: Body, edits: Edits): Partial<Writing> {
  const types: number[] = []
  const add = (type: number): number => body.locals + types.push(type) - 1
  const owed = paysAtOnce(body, edits) ? undefined : add(I64)
  const found = body.counted ? add(I64) : undefined
  const held: (number | undefined)[] = []
  for (let n = 1; n < edits.count; n++) {
    const kind = edits.kind[n] ?? 0
    const how = CANONICAL[kind]
    if (how !== undefined && edits.value[n] !== 0) held[kind] ??= add(how.type)
  }
  if (body.locals + types.length > LOCALS_MAX)
    throw refuse(
      'FUNCTION_TOO_LARGE',
      `a function has ${body.locals} locals; with the ${types.length} of metering that is over ${LOCALS_MAX}`,
      'build with smaller functions',
    )
  const groups = cursorOver(code, body.start, body.code)
  putU32(out, u32(groups) + types.length)
  putRange(out, code, groups.at, body.code)
  for (const type of types) putBytes(out, [1, type])
  return { owed, found, held }
}

/** The body's locals and instructions, without their length, into the empty `out`. */
export function writeBody(
  out: Out,
  code: Uint8Array,
  { body, edits }: { body: Body; edits: Edits },
  shared: Shared,
): void {
  const locals = writeLocals(out, code, body, edits)
  const wrapped =
    body.found.branchesOut && (locals.owed !== undefined || locals.found !== undefined)
  const writing: Writing = {
    ...shared,
    out,
    body,
    owed: locals.owed,
    found: locals.found,
    held: locals.held ?? [],
    wrapped,
  }
  begin(writing)
  if (wrapped) putBlock(writing)
  let copied = body.code
  for (let n = 1; n < edits.count; n++) {
    const at = edits.at[n] ?? 0
    if (at > copied) {
      putRange(out, code, copied, at)
      copied = at
    }
    writeEdit(writing, edits, n)
    copied = Math.max(copied, edits.until[n] ?? 0)
  }
  putRange(out, code, copied, body.end)
  if (out.length > BODY_BYTES_MAX)
    throw refuse(
      'FUNCTION_TOO_LARGE',
      `a function takes ${body.end - body.start} bytes, and ${out.length} with metering, over ${BODY_BYTES_MAX}`,
      'build with smaller functions',
    )
}

/** A block around the whole: a branch out of the body lands before what leaves it. */
function putBlock({ out, body, resultsType }: Writing): void {
  putByte(out, OP.block)
  const { resultCount, results } = body.type
  if (resultCount === 0) putByte(out, BLOCK.empty)
  else if (resultCount === 1) putBytes(out, results)
  else putS32(out, resultsType(body))
}

// Functions that metering appends to a module, each when the first body asks for it: growth within the budget, and
// charges by amount.
// 1. They stand after the module's own: no index changes.
// 2. They neither count depth nor call: one frame of a few words.
import {
  BYTES_A_UNIT_SHIFT,
  ELEMENT_BYTES_SHIFT,
  ELEMENTS_A_UNIT_SHIFT,
  GROWTH,
  PAGE_BYTES_SHIFT,
  UNITS_A_PAGE_SHIFT,
} from '#wasm/meter/budget.ts'
import {
  createOut,
  type Out,
  putByte,
  putBytes,
  putS32,
  putU32,
  written,
} from '#wasm/meter/bytes-out.ts'
import { BLOCK, I32, I64, OP } from '#wasm/meter/encoding.ts'
import type { Shape } from '#wasm/meter/shape.ts'

/** Indexes of globals. */
export type Globals = { fuel: number; depth: number; memory: number; refused: number }

/** Each answers the index of its function. */
export type AddedFunctions = {
  /** (pages: i32) → i32, as `memory.grow`. */
  memoryGrow(memory: number): number
  /** (value, elements: i32) → i32, as `table.grow`. */
  tableGrow(table: number): number
  /** (size: i32) → i32: charges for it and answers it. */
  bytes(): number
  elements(): number
  /** What was asked for, in the order of the indexes. */
  list(): AddedFunction[]
}

/** `type`: without the form byte; `body`: with its locals, without its length. */
export type AddedFunction = { type: number[]; body: Uint8Array }

const WASM_PAGES_MAX = 65_536
/** V8's own limit of a table's elements. */
const ELEMENTS_MAX = 10_000_000

/** Code that writes itself: opcodes and what follows them. */
type Code = {
  out: Out
  op(...bytes: number[]): Code
  at(opcode: number, index: number): Code
  i32(value: number): Code
  i64(value: number): Code
}

function createCode(): Code {
  const out = createOut(128)
  const code: Code = {
    out,
    op: (...bytes) => (putBytes(out, bytes), code),
    at: (opcode, index) => (putByte(out, opcode), putU32(out, index), code),
    i32: (value) => (putByte(out, OP.i32Const), putS32(out, value), code),
    i64: (value) => (putByte(out, OP.i64Const), putS32(out, value), code),
  }
  return code
}

/** fuel -= (u64)local `amount` moved by `shift` (up if negative); ends the guest that has no more. */
function chargeFor(code: Code, fuel: number, amount: number, shift: number): void {
  code
    .at(OP.globalGet, fuel)
    .at(OP.localGet, amount)
    .op(OP.i64ExtendI32U)
    .i64(Math.abs(shift))
    .op(shift < 0 ? OP.i64Shl : OP.i64ShrU, OP.i64Sub)
    .at(OP.globalSet, fuel)
    .at(OP.globalGet, fuel)
    .i64(0)
    .op(OP.i64LtS, OP.if, BLOCK.empty, OP.unreachable, OP.end)
}

function chargeFunction(fuel: number, shift: number): AddedFunction {
  const code = createCode().op(0)
  chargeFor(code, fuel, 0, shift)
  code.at(OP.localGet, 0).op(OP.end)
  return { type: [1, I32, 1, I32], body: written(code.out) }
}

type Growth = {
  globals: Globals
  /** The local of the amount, and a local i64 of bytes. */
  amount: number
  bytes: number
  /** What one of it takes of the budget, and what it costs, as shifts. */
  bytesShift: number
  fuelShift: number
  /** Pushes its size; grows it by the operands. */
  size: number[]
  grow: number[]
  /** It cannot grow past this; undefined: another module knows. */
  max: number | undefined
}

/** As `memory.grow` or `table.grow`, within the budget. */
function growth(code: Code, way: Growth): void {
  const { globals, amount, bytes, max } = way
  if (max !== undefined)
    code
      .at(OP.localGet, amount)
      .op(OP.i64ExtendI32U, ...way.size, OP.i64ExtendI32U, OP.i64Add)
      .i64(max)
      .op(OP.i64GtU, OP.if, BLOCK.empty)
      .i32(-1)
      .op(OP.return, OP.end)
  code
    .at(OP.localGet, amount)
    .op(OP.i64ExtendI32U)
    .i64(way.bytesShift)
    .op(OP.i64Shl)
    .at(OP.localTee, bytes)
    .at(OP.globalGet, globals.memory)
    .op(OP.i64GtS, OP.if, BLOCK.empty)
    .i32(GROWTH.budget)
    .at(OP.globalSet, globals.refused)
    .i32(-1)
    .op(OP.return, OP.end)
  chargeFor(code, globals.fuel, amount, way.fuelShift)
  code.op(...way.grow).at(OP.localTee, amount)
  code.i32(-1).op(OP.i32Eq, OP.if, BLOCK.empty)
  if (max !== undefined) code.i32(GROWTH.host).at(OP.globalSet, globals.refused).op(OP.unreachable)
  code.i32(-1).op(OP.return, OP.end)
  code
    .at(OP.globalGet, globals.memory)
    .at(OP.localGet, bytes)
    .op(OP.i64Sub)
    .at(OP.globalSet, globals.memory)
    .at(OP.localGet, amount)
    .op(OP.end)
}

const indexed = (opcode: number[], index: number): number[] => {
  const out = createOut(8)
  putBytes(out, opcode)
  putU32(out, index)
  return [...written(out)]
}

function memoryGrowth(shape: Shape, globals: Globals, index: number): AddedFunction {
  const memory = shape.memories[index]
  const code = createCode().op(1, 1, I64)
  growth(code, {
    globals,
    amount: 0,
    bytes: 1,
    bytesShift: PAGE_BYTES_SHIFT,
    fuelShift: -UNITS_A_PAGE_SHIFT,
    size: indexed([OP.memorySize], index),
    grow: [OP.localGet, 0, ...indexed([OP.memoryGrow], index)],
    max:
      memory?.own === true
        ? Math.min(memory.maxPages ?? WASM_PAGES_MAX, WASM_PAGES_MAX)
        : undefined,
  })
  return { type: [1, I32, 1, I32], body: written(code.out) }
}

function tableGrowth(shape: Shape, globals: Globals, index: number): AddedFunction {
  const table = shape.tables[index]
  const code = createCode().op(1, 1, I64)
  growth(code, {
    globals,
    amount: 1,
    bytes: 2,
    bytesShift: ELEMENT_BYTES_SHIFT,
    fuelShift: ELEMENTS_A_UNIT_SHIFT,
    size: indexed([0xfc, 0x10], index),
    grow: [OP.localGet, 0, OP.localGet, 1, ...indexed([0xfc, 0x0f], index)],
    max: table?.own === true ? Math.min(table.max ?? ELEMENTS_MAX, ELEMENTS_MAX) : undefined,
  })
  return { type: [2, ...(table?.element ?? []), I32, 1, I32], body: written(code.out) }
}

/** `first`: the index of the first that is asked for. */
export function createAddedFunctions(
  shape: Shape,
  globals: Globals,
  first: number,
): AddedFunctions {
  const indexes = new Map<string, number>()
  const made: AddedFunction[] = []
  const ask = (key: string, make: () => AddedFunction): number => {
    const known = indexes.get(key)
    if (known !== undefined) return known
    const index = first + made.push(make()) - 1
    indexes.set(key, index)
    return index
  }
  return {
    memoryGrow: (n) => ask(`memory ${n}`, () => memoryGrowth(shape, globals, n)),
    tableGrow: (n) => ask(`table ${n}`, () => tableGrowth(shape, globals, n)),
    bytes: () => ask('bytes', () => chargeFunction(globals.fuel, BYTES_A_UNIT_SHIFT)),
    elements: () => ask('elements', () => chargeFunction(globals.fuel, ELEMENTS_A_UNIT_SHIFT)),
    list: () => made,
  }
}

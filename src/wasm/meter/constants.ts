// Sections in which a constant may name a global: metering moves the module's own globals up, and their indexes with
// them. Everything else in these sections is copied.
import { type Cursor, count, cursorOver, malformed, skip, u32, u8 } from '#wasm/binary/cursor.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'
import { SECTION } from '#wasm/binary/sections.ts'
import { readOwnTables } from '#wasm/binary/tables.ts'
import { METER_GLOBALS } from '#wasm/meter/budget.ts'
import { createOut, type Out, putRange, putU32, written } from '#wasm/meter/bytes-out.ts'
import { ACT, ACTS, readOpcode, skipImmediates } from '#wasm/meter/instruction-set.ts'

/** What was read up to `copied` is written. */
type Copy = { cursor: Cursor; out: Out; copied: number; importedGlobals: number }

/** An index of a global at the cursor. */
function moveIndex(copy: Copy): void {
  const { cursor, out } = copy
  const at = cursor.at
  const index = u32(cursor)
  if (index < copy.importedGlobals) return
  putRange(out, cursor.bytes, copy.copied, at)
  putU32(out, index + METER_GLOBALS.length)
  copy.copied = cursor.at
}

function constant(copy: Copy): void {
  const { cursor } = copy
  for (;;) {
    const instruction = readOpcode(cursor)
    const act = ACTS[instruction]
    if (act === ACT.end) return
    if (act === ACT.global) moveIndex(copy)
    else skipImmediates(cursor, instruction)
  }
}

function global(copy: Copy): void {
  skipValueType(copy.cursor)
  u8(copy.cursor)
  constant(copy)
}

function exported(copy: Copy): void {
  const { cursor } = copy
  skip(cursor, u32(cursor))
  if (u8(cursor) === EXPORTED_GLOBAL) moveIndex(copy)
  else u32(cursor)
}

const EXPORTED_GLOBAL = 0x03

/** Bits of an element segment's form. */
const ELEMENT = { notActive: 1, explicit: 2, expressions: 4 } as const

function element(copy: Copy): void {
  const { cursor } = copy
  const form = u32(cursor)
  if (form > 7) throw malformed(cursor, `an element segment of form ${form}`)
  const active = (form & ELEMENT.notActive) === 0
  if (active && form & ELEMENT.explicit) u32(cursor)
  if (active) constant(copy)
  // An index of functions has a kind, an expression a type; the shortest forms have neither.
  if (form & (ELEMENT.notActive | ELEMENT.explicit)) {
    if (form & ELEMENT.expressions) skipValueType(cursor)
    else u8(cursor)
  }
  for (let left = count(cursor); left > 0; left--)
    if (form & ELEMENT.expressions) constant(copy)
    else u32(cursor)
}

function data(copy: Copy): void {
  const { cursor } = copy
  const form = u32(cursor)
  if (form > 2) throw malformed(cursor, `a data segment of form ${form}`)
  if (form === 2) u32(cursor)
  if (form !== 1) constant(copy)
  skip(cursor, u32(cursor))
}

const each =
  (entry: (copy: Copy) => void) =>
  (copy: Copy): void => {
    for (let left = count(copy.cursor); left > 0; left--) entry(copy)
  }

const BODIES = new Map<number, (copy: Copy) => void>([
  [SECTION.table, (copy) => void readOwnTables(copy.cursor, () => constant(copy))],
  [SECTION.global, each(global)],
  [SECTION.export, each(exported)],
  [SECTION.element, each(element)],
  [SECTION.data, each(data)],
])

/** Sections that `withMovedGlobals` knows. */
export const NAMING_GLOBALS: readonly number[] = [...BODIES.keys()]

/** The section's body with every index of an own global moved up by those that metering imports. */
export function withMovedGlobals(
  id: number,
  body: Uint8Array,
  importedGlobals: number,
): Uint8Array {
  const copyBody = BODIES.get(id)
  if (copyBody === undefined) return body
  const cursor = cursorOver(body)
  const copy: Copy = { cursor, out: createOut(body.length + 64), copied: 0, importedGlobals }
  copyBody(copy)
  putRange(copy.out, body, copy.copied, body.length)
  return written(copy.out)
}

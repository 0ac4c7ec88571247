// Tables that a core module defines or imports.
import { type Cursor, count, malformed, refuse, skipLeb, u32, u8 } from '#wasm/binary/cursor.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'

/** `element`: the reference type, as the binary writes it. `own`: defined here, not imported. */
export type Table = { element: Uint8Array; min: number; max: number | undefined; own: boolean }

/** Bytes that an element takes of a memory budget (V8: 4 to 24). */
export const ELEMENT_BYTES = 16

/** `0x40 0x00 type expression`: a table that brings its elements' first value. */
const WITH_INIT = 0x40

const REF_NULL = 0xd0
const REF_FUNC = 0xd2
const GLOBAL_GET = 0x23
const END = 0x0b

/** A table's type; refuses 64-bit and shared ones. */
export function readTable(cursor: Cursor, own: boolean): Table {
  const at = cursor.at
  skipValueType(cursor)
  const element = cursor.bytes.subarray(at, cursor.at)
  const flags = u8(cursor)
  if (flags > 0x01) throw refuse('MALFORMED', `table flags 0x${flags.toString(16)} are not offered`)
  const min = u32(cursor)
  return { element, min, max: flags === 0x01 ? u32(cursor) : undefined, own }
}

/** Steps over a constant of a reference type, its `end` included. */
function skipReference(cursor: Cursor): void {
  const opcode = u8(cursor)
  if (opcode === REF_NULL) skipLeb(cursor, 5)
  else if (opcode === REF_FUNC || opcode === GLOBAL_GET) u32(cursor)
  else throw malformed(cursor, `a table begins with instruction 0x${opcode.toString(16)}`)
  if (u8(cursor) !== END) throw malformed(cursor, 'a table begins with more than a constant')
}

/**
 * Reads a table section. `onConstant` is called where a first value begins and steps over it.
 */
export function readOwnTables(
  cursor: Cursor,
  onConstant: (cursor: Cursor) => void = skipReference,
): Table[] {
  const tables: Table[] = []
  for (let left = count(cursor); left > 0; left--) {
    const init = cursor.bytes[cursor.at] === WITH_INIT
    if (init) for (let byte = 0; byte < 2; byte++) u8(cursor)
    tables.push(readTable(cursor, true))
    if (init) onConstant(cursor)
  }
  return tables
}

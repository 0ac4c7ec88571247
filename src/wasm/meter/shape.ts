// What a body refers to by index: types, functions, memories, tables, globals, tags of a core module. Read once, before
// its bodies. V8 has found the module valid; a lie is still refused, never believed.
import {
  type Cursor,
  count,
  cursorOver,
  malformed,
  refuse,
  skip,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { memoryLimits, type MemoryLimits, skipValueType } from '#wasm/binary/core-module.ts'
import { SECTION, type Sections } from '#wasm/binary/sections.ts'
import { readOwnTables, readTable, type Table } from '#wasm/binary/tables.ts'

export type FunctionType = {
  params: number
  /** As the binary writes them, without their count. */
  results: Uint8Array
  resultCount: number
  /** Whether a vector is among them: it takes two words of a stack. */
  wide: boolean
}

/** `own`: defined here, not imported. */
export type Memory = MemoryLimits & { own: boolean }

export type Shape = {
  types: FunctionType[]
  /** Type index by function index, imported ones first. */
  functions: number[]
  importedFunctions: number
  importedGlobals: number
  ownGlobals: number
  memories: Memory[]
  tables: Table[]
  /** Type index by tag index. */
  tags: number[]
  bodies: number
}

export const V128 = 0x7b
const FUNCTION_FORM = 0x60
function readType(cursor: Cursor): FunctionType {
  const form = u8(cursor)
  if (form !== FUNCTION_FORM)
    throw refuse(
      'UNSUPPORTED_TYPE',
      `the module defines a type of form 0x${form.toString(16)}; functions have plain function types`,
      'build without garbage-collected types',
    )
  let wide = false
  const skipValues = (values: number): void => {
    for (let left = values; left > 0; left--) {
      wide ||= cursor.bytes[cursor.at] === V128
      skipValueType(cursor)
    }
  }
  const params = count(cursor)
  skipValues(params)
  const resultCount = count(cursor)
  const at = cursor.at
  skipValues(resultCount)
  return { params, results: cursor.bytes.subarray(at, cursor.at), resultCount, wide }
}

function readImport(cursor: Cursor, shape: Shape): void {
  for (let part = 0; part < 2; part++) skip(cursor, u32(cursor))
  const kind = u8(cursor)
  if (kind === 0) {
    shape.functions.push(u32(cursor))
    shape.importedFunctions++
  } else if (kind === 1) shape.tables.push(readTable(cursor, false))
  else if (kind === 2) shape.memories.push({ ...memoryLimits(cursor), own: false })
  else if (kind === 3) {
    skipValueType(cursor)
    u8(cursor)
    shape.importedGlobals++
  } else if (kind === 4) {
    u8(cursor)
    shape.tags.push(u32(cursor))
  } else throw malformed(cursor, `an import of kind ${kind}`)
}

type Read = (cursor: Cursor, shape: Shape) => void

const each =
  (read: Read): Read =>
  (cursor, shape) => {
    for (let left = count(cursor); left > 0; left--) read(cursor, shape)
  }

const READS = new Map<number, Read>([
  [SECTION.type, each((cursor, shape) => shape.types.push(readType(cursor)))],
  [SECTION.import, each(readImport)],
  [SECTION.function, each((cursor, shape) => shape.functions.push(u32(cursor)))],
  [SECTION.table, (cursor, shape) => shape.tables.push(...readOwnTables(cursor))],
  [
    SECTION.memory,
    each((cursor, shape) => shape.memories.push({ ...memoryLimits(cursor), own: true })),
  ],
  [SECTION.global, (cursor, shape) => void (shape.ownGlobals = count(cursor))],
  [
    SECTION.tag,
    each((cursor, shape) => {
      u8(cursor)
      shape.tags.push(u32(cursor))
    }),
  ],
  [SECTION.code, (cursor, shape) => void (shape.bodies = count(cursor))],
])

/** Refuses what a metered module may not have: garbage-collected types, 64-bit and shared memories and tables. */
export function shapeOf(sections: Sections): Shape {
  const shape: Shape = {
    types: [],
    functions: [],
    importedFunctions: 0,
    importedGlobals: 0,
    ownGlobals: 0,
    memories: [],
    tables: [],
    tags: [],
    bodies: 0,
  }
  for (const [id, read] of READS) {
    const body = sections.bodies.get(id)?.[0]
    if (body !== undefined) read(cursorOver(body), shape)
  }
  if (shape.bodies !== shape.functions.length - shape.importedFunctions)
    throw refuse('MALFORMED', 'the module has not one body for each function')
  return shape
}

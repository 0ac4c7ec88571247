// The metered form of a core module: it counts what it burns, how deep it calls and what memory it takes, and ends where
// a bound is reached. One pass over its bodies.
// 1. A metered module that V8 finds valid gives what it gave before, as long as no bound is reached.
// 2. What it burns depends on its code and input alone: not on the compiler's tier, nor on what ran before.
// 3. State is shared: the globals are imported, the same ones by every module of an invocation (budget.ts).
// 4. No function's index changes: traps name functions as the module does.
import { assert } from '#lib/assert.ts'
import { cursorOver, count, skip, u32 } from '#wasm/binary/cursor.ts'
import { putTogether, SECTION, type Sections, takeApart } from '#wasm/binary/sections.ts'
import { type AddedFunction, createAddedFunctions } from '#wasm/meter/added-functions.ts'
import { METER_GLOBALS, METER_MODULE } from '#wasm/meter/budget.ts'
import {
  createOut,
  type Out,
  putBytes,
  putName,
  putRange,
  putU32,
  written,
} from '#wasm/meter/bytes-out.ts'
import { NAMING_GLOBALS, withMovedGlobals } from '#wasm/meter/constants.ts'
import { createEdits } from '#wasm/meter/edits.ts'
import { I32, I64 } from '#wasm/meter/encoding.ts'
import { functionNames } from '#wasm/meter/names.ts'
import { type Shared, writeBody } from '#wasm/meter/rewrite.ts'
import { type FunctionType, type Shape, shapeOf } from '#wasm/meter/shape.ts'
import { type BodyWalker, walkBody } from '#wasm/meter/walk.ts'

export type MeterOptions = {
  /**
   * Whether every NaN that arithmetic makes has the canonical bits wherever they show: results are then the same on every
   * machine. Refuses relaxed SIMD, whose results are not.
   */
  canonicalNaNs: boolean
}

const FUNCTION_FORM = 0x60
const IMPORTED_GLOBAL = 0x03
const MUTABLE = 0x01

/** What metering adds to a body, as a share of it: a guess that saves copying. */
const GROWTH_GUESS = 1.6

/** Appends elements, already encoded, to a vector section. */
function append(sections: Sections, id: number, elements: readonly ArrayLike<number>[]): void {
  if (elements.length === 0) return
  const body = sections.bodies.get(id)?.[0] ?? Uint8Array.of(0)
  const cursor = cursorOver(body)
  const out = createOut(body.length + 16)
  putU32(out, count(cursor) + elements.length)
  putRange(out, body, cursor.at, body.length)
  for (const element of elements) putBytes(out, element)
  sections.bodies.set(id, [written(out)])
}

function meterImports(): Uint8Array[] {
  return METER_GLOBALS.map((name) => {
    const out = createOut(64)
    putName(out, METER_MODULE)
    putName(out, name)
    putBytes(out, [IMPORTED_GLOBAL, name === 'refused' ? I32 : I64, MUTABLE])
    return written(out)
  })
}

const encoded = (value: number): Uint8Array => {
  const out = createOut(5)
  putU32(out, value)
  return written(out)
}

/** Types that metering needs, appended after the module's own. */
function createAddedTypes(shape: Shape): {
  add(type: ArrayLike<number>): number
  list: ArrayLike<number>[]
} {
  const indexes = new Map<string, number>()
  const list: ArrayLike<number>[] = []
  return {
    list,
    add(type) {
      const key = Array.from(type).join()
      const known = indexes.get(key)
      if (known !== undefined) return known
      const index = shape.types.length + list.push(type) - 1
      indexes.set(key, index)
      return index
    },
  }
}

const resultsOnly = ({ resultCount, results }: FunctionType): ArrayLike<number> => [
  FUNCTION_FORM,
  0,
  ...encoded(resultCount),
  ...results,
]

function rewriteBodies(out: Out, code: Uint8Array, walker: BodyWalker, shared: Shared): void {
  const cursor = cursorOver(code)
  const bodies = count(cursor)
  const scratch = createOut(1 << 16)
  for (let own = 0; own < bodies; own++) {
    const length = u32(cursor)
    const start = cursor.at
    skip(cursor, length)
    const body = walkBody(walker, own, cursorOver(code, start, cursor.at))
    scratch.length = 0
    writeBody(scratch, code, { body, edits: walker.edits }, shared)
    putU32(out, scratch.length)
    putRange(out, scratch.bytes, 0, scratch.length)
  }
}

function putAddedBodies(out: Out, added: readonly AddedFunction[]): void {
  for (const { body } of added) {
    putU32(out, body.length)
    putRange(out, body, 0, body.length)
  }
}

function meterCode(
  sections: Sections,
  shape: Shape,
  code: Uint8Array,
  { canonicalNaNs }: MeterOptions,
): void {
  const [fuel = 0, depth = 0, memory = 0, refused = 0] = METER_GLOBALS.map(
    (_, i) => shape.importedGlobals + i,
  )
  const types = createAddedTypes(shape)
  const globals = { fuel, depth, memory, refused }
  const added = createAddedFunctions(shape, globals, shape.functions.length)
  const walker: BodyWalker = {
    shape,
    edits: createEdits(),
    known: { stack: new Int32Array(shape.bodies), work: new Int32Array(shape.bodies) },
    canonicalNaNs,
    producers: new Int32Array(1024),
  }
  const bodies = createOut(Math.ceil(code.length * GROWTH_GUESS) + 4096)
  rewriteBodies(bodies, code, walker, {
    fuel,
    depth,
    added,
    resultsType: ({ type }) => types.add(resultsOnly(type)),
  })
  const made = added.list()
  const madeTypes = made.map(({ type }) => encoded(types.add([FUNCTION_FORM, ...type])))
  putAddedBodies(bodies, made)
  for (const id of NAMING_GLOBALS) {
    const body = sections.bodies.get(id)?.[0]
    if (body !== undefined && shape.ownGlobals > 0)
      sections.bodies.set(id, [withMovedGlobals(id, body, shape.importedGlobals)])
  }
  append(sections, SECTION.import, meterImports())
  append(sections, SECTION.function, madeTypes)
  append(sections, SECTION.type, types.list)
  const total = encoded(shape.bodies + made.length)
  sections.bodies.set(SECTION.code, [total, written(bodies)])
}

/**
 * The metered form of a module that V8 finds valid. Refuses UNSUPPORTED_TYPE, UNSUPPORTED_INSTRUCTION,
 * FUNCTION_TOO_LARGE and memories that are not offered; the result is valid again.
 */
export function meterModule(bytes: Uint8Array, options: MeterOptions): Uint8Array {
  const sections = takeApart(bytes)
  const shape = shapeOf(sections)
  const code = sections.bodies.get(SECTION.code)?.[0]
  if (code !== undefined && shape.bodies > 0) meterCode(sections, shape, code, options)
  sections.custom = sections.custom.map(functionNames)
  const out = putTogether(sections)
  assert(WebAssembly.validate(out), 'a metered module is valid')
  return out
}

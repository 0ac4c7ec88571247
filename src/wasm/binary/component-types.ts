// Walks the type section of a component: its only purpose is to see every name in it, and which functions an
// imported interface is asked for. Encoding: the component model's Binary.md.
import {
  type Cursor,
  count,
  malformed,
  name,
  refuse,
  skip,
  skipLeb,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { checkComponentName } from '#wasm/binary/safe-name.ts'

/** Names of what an instance type holds but for types; undefined for every other type. */
export type InstanceType = { functions: string[] } | undefined

export type Extern = {
  sort: 'module' | 'func' | 'type' | 'component' | 'instance'
  typeIndex: number
}

/** Types nest (an instance type holds types); real ones go three deep. */
const DEPTH_MAX = 32

const unknown = (cursor: Cursor, what: string, byte: number): Error =>
  malformed(cursor, `${what} 0x${byte.toString(16)} is not known to this version`)

/** A name of an import or export; the annotated forms (0x02: implements, version suffix) are not offered. */
export function externName(cursor: Cursor, what: string): string {
  const form = u8(cursor)
  if (form > 0x01) throw unknown(cursor, 'the form of a name', form)
  const text = name(cursor)
  checkComponentName(text, what)
  return text
}

const label = (cursor: Cursor): void => checkComponentName(name(cursor), 'the label')

export function externType(cursor: Cursor): Extern {
  const kind = u8(cursor)
  switch (kind) {
    case 0x00: {
      const core = u8(cursor)
      if (core !== 0x11) throw unknown(cursor, 'the core sort', core)
      return { sort: 'module', typeIndex: u32(cursor) }
    }
    case 0x01:
      return { sort: 'func', typeIndex: u32(cursor) }
    case 0x03:
      if (u8(cursor) === 0x00) u32(cursor)
      return { sort: 'type', typeIndex: -1 }
    case 0x04:
      return { sort: 'component', typeIndex: u32(cursor) }
    case 0x05:
      return { sort: 'instance', typeIndex: u32(cursor) }
    default:
      throw unknown(cursor, 'the kind of an import or export', kind)
  }
}

/** A sort byte, with the second byte of a core sort. Returns whether it is the sort `type`. */
export function sort(cursor: Cursor): { isType: boolean } {
  const kind = u8(cursor)
  if (kind === 0x00) u8(cursor)
  else if (kind > 0x05) throw unknown(cursor, 'the sort', kind)
  return { isType: kind === 0x03 }
}

/** An alias; returns whether it adds to the type index space. */
export function alias(cursor: Cursor): { isType: boolean } {
  const of = sort(cursor)
  const target = u8(cursor)
  if (target > 0x02) throw unknown(cursor, 'the alias target', target)
  u32(cursor)
  if (target === 0x02) u32(cursor)
  else checkComponentOrCoreAlias(cursor, target)
  return of
}

function checkComponentOrCoreAlias(cursor: Cursor, target: number): void {
  const text = name(cursor)
  // Core export aliases name core exports, which have the wider alphabet and are checked in their module.
  if (target === 0x00) checkComponentName(text, 'the alias')
}

const optional = (cursor: Cursor, read: (cursor: Cursor) => void): void => {
  const present = u8(cursor)
  if (present === 0x01) read(cursor)
  else if (present !== 0x00) throw unknown(cursor, 'the option', present)
}

/** A value type: a primitive's negative byte or a type index, both one signed LEB. */
const valueType = (cursor: Cursor): void => skipLeb(cursor, 5)

const each = (cursor: Cursor, read: (cursor: Cursor) => void): void => {
  for (let left = count(cursor); left > 0; left--) read(cursor)
}

const labelled = (cursor: Cursor): void => {
  label(cursor)
  valueType(cursor)
}

const variantCase = (cursor: Cursor): void => {
  label(cursor)
  optional(cursor, valueType)
  if (u8(cursor) !== 0x00) throw malformed(cursor, 'a variant case refines another')
}

function functionType(cursor: Cursor): void {
  each(cursor, labelled)
  const results = u8(cursor)
  if (results === 0x00) valueType(cursor)
  else if (results === 0x01) each(cursor, labelled)
  else throw unknown(cursor, 'the result list', results)
}

function resourceType(cursor: Cursor): void {
  u8(cursor)
  optional(cursor, u32)
}

/** Compound value types by their byte. */
const VALUE_TYPES = new Map<number, (cursor: Cursor) => void>([
  [0x72, (cursor) => each(cursor, labelled)],
  [0x71, (cursor) => each(cursor, variantCase)],
  [0x70, valueType],
  [0x6f, (cursor) => each(cursor, valueType)],
  [0x6e, (cursor) => each(cursor, label)],
  [0x6d, (cursor) => each(cursor, label)],
  [0x6b, valueType],
  [
    0x6a,
    (cursor) => {
      optional(cursor, valueType)
      optional(cursor, valueType)
    },
  ],
  [0x69, u32],
  [0x68, u32],
])

/** Declarations inside an instance type (0x42) or component type (0x41). */
function declarations(cursor: Cursor, depth: number): InstanceType {
  const functions: string[] = []
  each(cursor, () => {
    const kind = u8(cursor)
    if (kind === 0x01) definedType(cursor, depth + 1)
    else if (kind === 0x02) alias(cursor)
    else if (kind === 0x03) {
      externName(cursor, 'the import')
      externType(cursor)
    } else if (kind === 0x04) {
      const text = externName(cursor, 'the export')
      if (externType(cursor).sort !== 'type') functions.push(text)
    } else throw unknown(cursor, 'the declaration', kind)
  })
  return { functions }
}

/** One entry of a type section. */
export function definedType(cursor: Cursor, depth = 0): InstanceType {
  if (depth > DEPTH_MAX) throw malformed(cursor, `types nest deeper than ${DEPTH_MAX}`)
  const form = u8(cursor)
  if (form === 0x40) functionType(cursor)
  else if (form === 0x42) return declarations(cursor, depth)
  else if (form === 0x41) declarations(cursor, depth)
  else if (form === 0x3f) resourceType(cursor)
  else if (form >= 0x73 && form <= 0x7f) return undefined
  else {
    const read = VALUE_TYPES.get(form)
    if (read === undefined)
      throw refuse(
        'UNSUPPORTED_TYPE',
        `the component defines a type of form 0x${form.toString(16)} (async, stream, future or newer), which WASI 0.2 has not`,
        'build for WASI 0.2',
      )
    read(cursor)
  }
  return undefined
}

/** `(core type …)` of module form would bring names this walk does not follow; toolchains emit none. */
export function coreType(cursor: Cursor): void {
  const form = u8(cursor)
  if (form !== 0x60) throw unknown(cursor, 'the core type form', form)
  for (let part = 0; part < 2; part++) skip(cursor, count(cursor))
}

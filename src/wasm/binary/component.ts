// What a component declares, and every name in it, read by our own code before any other tool sees the bytes.
// 1. Every section that can carry a name is walked; a form this file does not know is refused (fail closed).
// 2. Nested components and core modules are walked by the same rules.
import {
  type Cursor,
  count,
  cursorOver,
  malformed,
  name,
  sectionsOf,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { type CoreModule, readCoreModule } from '#wasm/binary/core-module.ts'
import {
  alias,
  coreType,
  definedType,
  externName,
  externType,
  type InstanceType,
  sort,
} from '#wasm/binary/component-types.ts'
import { checkCoreName, checkComponentName } from '#wasm/binary/safe-name.ts'

export type ComponentImport = {
  /** 'wasi:cli/exit@0.2.12' */
  name: string
  sort: 'module' | 'func' | 'type' | 'component' | 'instance'
  /**
   * For an instance: the functions it is asked for, as the binary spells them: '[method]pollable.ready'. Undefined when
   * its type is not written out where it is imported: an alias may stand for anything.
   */
  functions: string[] | undefined
}

export type Component = {
  imports: ComponentImport[]
  exports: { name: string; isInstance: boolean }[]
  /** Every core module, nested ones included. */
  modules: CoreModule[]
}

const DEPTH_MAX = 16

const CORE_MODULE = 1
const CORE_INSTANCE = 2
const CORE_TYPE = 3
const COMPONENT = 4
const INSTANCE = 5
const ALIAS = 6
const TYPE = 7
const CANON = 8
const START = 9
const IMPORT = 10
const EXPORT = 11

type Walk = Component & { types: InstanceType[]; depth: number }

const each = (cursor: Cursor, read: (cursor: Cursor) => void): void => {
  for (let left = count(cursor); left > 0; left--) read(cursor)
}

function readImport(walk: Walk, cursor: Cursor): void {
  const text = externName(cursor, 'the import')
  const extern = externType(cursor)
  const functions = extern.sort === 'instance' ? walk.types[extern.typeIndex]?.functions : []
  walk.imports.push({ name: text, sort: extern.sort, functions })
  if (extern.sort === 'type') walk.types.push(undefined)
}

function readExport(walk: Walk, cursor: Cursor): void {
  const text = externName(cursor, 'the export')
  const kind = cursor.bytes[cursor.at]
  const { isType } = sort(cursor)
  u32(cursor)
  if (u8(cursor) === 0x01) externType(cursor)
  walk.exports.push({ name: text, isInstance: kind === 0x05 })
  if (isType) walk.types.push(undefined)
}

function readCoreInstance(cursor: Cursor): void {
  const form = u8(cursor)
  if (form > 0x01) throw malformed(cursor, `core instance form 0x${form.toString(16)}`)
  if (form === 0x00) u32(cursor)
  each(cursor, () => {
    checkCoreName(name(cursor), 'the core instance argument')
    u8(cursor)
    u32(cursor)
  })
}

function readInstance(cursor: Cursor): void {
  const form = u8(cursor)
  if (form > 0x01) throw malformed(cursor, `instance form 0x${form.toString(16)}`)
  if (form === 0x00) u32(cursor)
  each(cursor, () => {
    if (form === 0x00) checkComponentName(name(cursor), 'the instance argument')
    else externName(cursor, 'the instance export')
    sort(cursor)
    u32(cursor)
  })
}

function readSection(walk: Walk, id: number, cursor: Cursor): void {
  switch (id) {
    case CORE_MODULE:
      walk.modules.push(readCoreModule(cursor.bytes.subarray(cursor.at, cursor.end)))
      return
    case COMPONENT: {
      const inner = cursor.bytes.subarray(cursor.at, cursor.end)
      walk.modules.push(...walkComponent(inner, walk.depth + 1).modules)
      return
    }
    case CORE_INSTANCE:
      return each(cursor, readCoreInstance)
    case CORE_TYPE:
      return each(cursor, coreType)
    case INSTANCE:
      return each(cursor, readInstance)
    case ALIAS:
      return each(cursor, () => {
        if (alias(cursor).isType) walk.types.push(undefined)
      })
    case TYPE:
      return each(cursor, () => void walk.types.push(definedType(cursor)))
    case IMPORT:
      return each(cursor, () => readImport(walk, cursor))
    case EXPORT:
      return each(cursor, () => readExport(walk, cursor))
    case 0: // custom
    case CANON:
    case START:
      return
    default:
      throw malformed(cursor, `section ${id} is not known to this version`)
  }
}

function walkComponent(bytes: Uint8Array, depth: number): Walk {
  if (depth > DEPTH_MAX)
    throw malformed(cursorOver(bytes), `components nest deeper than ${DEPTH_MAX}`)
  const walk: Walk = { imports: [], exports: [], modules: [], types: [], depth }
  for (const section of sectionsOf(bytes))
    readSection(walk, section.id, cursorOver(bytes, section.start, section.end))
  return walk
}

/** Reads a component's borders and checks every name in it. Refuses with INVALID and a reason. */
export const readComponent = (bytes: Uint8Array): Component => {
  const { imports, exports, modules } = walkComponent(bytes, 0)
  return { imports, exports, modules }
}

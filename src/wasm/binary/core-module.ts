// What a core module declares at its borders: names, memories. Reads only; the engine's V8 validates.
import {
  type Cursor,
  count,
  cursorOver,
  malformed,
  name,
  refuse,
  sectionsOf,
  skipLeb,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { checkCoreName, quoted } from '#wasm/binary/safe-name.ts'

export type CoreKind = 'func' | 'table' | 'memory' | 'global' | 'tag'

export type CoreImport = { module: string; name: string; kind: CoreKind }

/** `minPages` and `maxPages` in pages of 64 KiB; `maxPages` undefined when the module states none. */
export type MemoryLimits = { minPages: number; maxPages: number | undefined }

export type CoreModule = {
  imports: CoreImport[]
  exports: { name: string; kind: CoreKind }[]
  /** Memories it defines, not those it imports. */
  memories: MemoryLimits[]
}

export const PAGE_BYTES = 65_536
export const PAGES_PER_MIB = 16

/** Toolchains emit one. Each takes address space whatever its size, and 10 GB of it. */
export const MEMORIES_MAX = 100

/** Names that the preparer appends itself; a module may not bring its own. */
export const RESERVED_PREFIX = '$clutch.'

const KINDS: readonly CoreKind[] = ['func', 'table', 'memory', 'global', 'tag']

const SECTION_IMPORT = 2
const SECTION_MEMORY = 5
const SECTION_EXPORT = 7

function kindOf(cursor: Cursor): CoreKind {
  const kind = KINDS[u8(cursor)]
  if (kind === undefined) throw malformed(cursor, 'an import or export is of an unknown kind')
  return kind
}

/** Reads one memory's limits; refuses shared and 64-bit memories and odd page sizes. */
export function memoryLimits(cursor: Cursor): MemoryLimits {
  const flags = u8(cursor)
  if (flags & 0x02)
    throw refuse('SHARED_MEMORY', 'the module uses a shared memory; functions run single-threaded')
  if (flags & 0x04)
    throw refuse('MEMORY_64', 'the module uses a 64-bit memory, which is not offered')
  if (flags > 0x01) throw refuse('MALFORMED', `memory flags 0x${flags.toString(16)} are not known`)
  const minPages = u32(cursor)
  return { minPages, maxPages: flags & 0x01 ? u32(cursor) : undefined }
}

/** Skips a value or reference type: one byte, or `(ref ht)` with its heap type. */
export function skipValueType(cursor: Cursor): void {
  const type = u8(cursor)
  if (type === 0x63 || type === 0x64) skipLeb(cursor, 5)
}

function skipTableType(cursor: Cursor): void {
  skipValueType(cursor)
  const flags = u8(cursor)
  if (flags > 0x01) throw refuse('MALFORMED', `table flags 0x${flags.toString(16)} are not offered`)
  u32(cursor)
  if (flags & 0x01) u32(cursor)
}

function skipImportType(cursor: Cursor, kind: CoreKind): void {
  switch (kind) {
    case 'func':
      u32(cursor)
      return
    case 'table':
      return skipTableType(cursor)
    case 'memory':
      memoryLimits(cursor)
      return
    case 'global':
      skipValueType(cursor)
      u8(cursor)
      return
    case 'tag':
      u8(cursor)
      u32(cursor)
  }
}

/** A guest that could name what metering adds could set its own fuel. */
function checkNotReserved(text: string, what: string): void {
  if (text.startsWith(RESERVED_PREFIX))
    throw refuse('UNSAFE_NAME', `${what} ${quoted(text)} uses a reserved prefix`)
}

/** Import section at `cursor`; also checks every name against the safe set. */
function readImports(cursor: Cursor): CoreImport[] {
  return Array.from({ length: count(cursor) }, () => {
    const module = name(cursor)
    const field = name(cursor)
    checkCoreName(module, 'the core import module')
    checkCoreName(field, 'the core import')
    checkNotReserved(module, 'the core import module')
    const kind = kindOf(cursor)
    skipImportType(cursor, kind)
    return { module, name: field, kind }
  })
}

function readExports(cursor: Cursor): CoreModule['exports'] {
  return Array.from({ length: count(cursor) }, () => {
    const field = name(cursor)
    checkCoreName(field, 'the core export')
    checkNotReserved(field, 'the core export')
    const kind = kindOf(cursor)
    u32(cursor)
    return { name: field, kind }
  })
}

function readMemories(cursor: Cursor): MemoryLimits[] {
  const memories = Array.from({ length: count(cursor) }, () => memoryLimits(cursor))
  if (memories.length > MEMORIES_MAX)
    throw refuse(
      'TOO_MANY_MEMORIES',
      `the module defines ${memories.length} memories; at most ${MEMORIES_MAX} are offered`,
      'build with one memory, as toolchains do',
    )
  return memories
}

/** Reads and checks one core module's borders. Refuses with INVALID and a reason. */
export function readCoreModule(bytes: Uint8Array): CoreModule {
  const module: CoreModule = { imports: [], exports: [], memories: [] }
  for (const section of sectionsOf(bytes)) {
    const cursor = cursorOver(bytes, section.start, section.end)
    if (section.id === SECTION_IMPORT) module.imports = module.imports.concat(readImports(cursor))
    else if (section.id === SECTION_EXPORT)
      module.exports = module.exports.concat(readExports(cursor))
    else if (section.id === SECTION_MEMORY)
      module.memories = module.memories.concat(readMemories(cursor))
  }
  return module
}

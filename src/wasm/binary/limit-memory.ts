// Lowers the maximum of every memory a module defines, so that growth past the cap answers -1 inside the guest.
// Touches the memory section only: the rest of the module is copied byte for byte.
import {
  count,
  cursorOver,
  pushU32,
  refuse,
  type Section,
  sectionsOf,
} from '#wasm/binary/cursor.ts'
import {
  memoryLimits,
  type MemoryLimits,
  PAGE_BYTES,
  PAGES_PER_MIB,
} from '#wasm/binary/core-module.ts'
import { ELEMENT_BYTES, readOwnTables } from '#wasm/binary/tables.ts'

const SECTION_TABLE = 4
const SECTION_MEMORY = 5

/** Refuses (MEMORY_MINIMUM) a module whose memories start with more than `memMb` MiB together. */
export function checkMinimum(memories: readonly MemoryLimits[], memMb: number): void {
  const minMb = memories.reduce((sum, { minPages }) => sum + minPages, 0) / PAGES_PER_MIB
  if (minMb > memMb)
    throw refuse(
      'MEMORY_MINIMUM',
      `the module asks for ${Math.ceil(minMb)} MiB of memory at start; memMb allows ${memMb}`,
      `deploy with memMb of at least ${Math.ceil(minMb)}`,
    )
}

const readLimits = (bytes: Uint8Array, { start, end }: Section): MemoryLimits[] => {
  const cursor = cursorOver(bytes, start, end)
  return Array.from({ length: count(cursor) }, () => memoryLimits(cursor))
}

const memorySection = (bytes: Uint8Array): Section | undefined =>
  sectionsOf(bytes).find(({ id }) => id === SECTION_MEMORY)

/** What a module's own memories and tables take before anything runs, and how many memories it has. */
export function sizeAtStart(bytes: Uint8Array): { bytesAtStart: number; memoriesAtStart: number } {
  const size = { bytesAtStart: 0, memoriesAtStart: 0 }
  for (const section of sectionsOf(bytes)) {
    if (section.id === SECTION_MEMORY)
      for (const { minPages } of readLimits(bytes, section)) {
        size.bytesAtStart += minPages * PAGE_BYTES
        size.memoriesAtStart++
      }
    else if (section.id === SECTION_TABLE)
      for (const { min } of readOwnTables(cursorOver(bytes, section.start, section.end)))
        size.bytesAtStart += min * ELEMENT_BYTES
  }
  return size
}

function limitedSection(memories: readonly MemoryLimits[], memMb: number): number[] {
  const body: number[] = []
  pushU32(body, memories.length)
  checkMinimum(memories, memMb)
  for (const { minPages, maxPages } of memories) {
    body.push(0x01)
    pushU32(body, minPages)
    pushU32(body, Math.min(maxPages ?? Infinity, memMb * PAGES_PER_MIB))
  }
  const section = [SECTION_MEMORY]
  pushU32(section, body.length)
  return [...section, ...body]
}

/** The module with every own memory capped at `memMb` MiB; itself when it defines none. */
export function limitMemory(bytes: Uint8Array, memMb: number): Uint8Array {
  const section = memorySection(bytes)
  if (section === undefined) return bytes
  const before = bytes.subarray(0, section.at)
  const limited = limitedSection(readLimits(bytes, section), memMb)
  const out = new Uint8Array(before.length + limited.length + bytes.length - section.end)
  out.set(before)
  out.set(limited, before.length)
  out.set(bytes.subarray(section.end), before.length + limited.length)
  return out
}

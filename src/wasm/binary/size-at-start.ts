// What a module takes before anything runs. What it takes later is counted by metered code (meter/budget.ts).
import { count, cursorOver, refuse, type Section, sectionsOf } from '#wasm/binary/cursor.ts'
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

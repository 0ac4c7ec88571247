// Lowers the maximum of every memory a module defines, so that growth past the cap answers -1 inside the guest.
// Touches the memory section only: the rest of the module is copied byte for byte.
import { count, cursorOver, pushU32, refuse, sectionsOf } from '#wasm/binary/cursor.ts'
import { memoryLimits, PAGES_PER_MIB } from '#wasm/binary/core-module.ts'

const SECTION_MEMORY = 5

/** Refuses (MEMORY_MINIMUM) a memory whose minimum is over `memMb` MiB. */
export function checkMinimum(minPages: number, memMb: number): void {
  const minMb = minPages / PAGES_PER_MIB
  if (minMb > memMb)
    throw refuse(
      'MEMORY_MINIMUM',
      `the module asks for ${Math.ceil(minMb)} MiB of memory at start; memMb allows ${memMb}`,
      `deploy with memMb of at least ${Math.ceil(minMb)}`,
    )
}

function limitedSection(bytes: Uint8Array, start: number, end: number, memMb: number): number[] {
  const cursor = cursorOver(bytes, start, end)
  const memories = Array.from({ length: count(cursor) }, () => memoryLimits(cursor))
  const body: number[] = []
  pushU32(body, memories.length)
  for (const { minPages, maxPages } of memories) {
    checkMinimum(minPages, memMb)
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
  const section = sectionsOf(bytes).find(({ id }) => id === SECTION_MEMORY)
  if (section === undefined) return bytes
  const before = bytes.subarray(0, section.at)
  const limited = limitedSection(bytes, section.start, section.end, memMb)
  const out = new Uint8Array(before.length + limited.length + bytes.length - section.end)
  out.set(before)
  out.set(limited, before.length)
  out.set(bytes.subarray(section.end), before.length + limited.length)
  return out
}

// The `name` section: traps are told by its function names. Function indexes do not move; globals' do, so only the names
// of the module and of functions are kept.
import { cursorOver, name, skip, u32, u8 } from '#wasm/binary/cursor.ts'
import { createOut, putName, putRange, written } from '#wasm/meter/bytes-out.ts'

const FUNCTION_NAMES = 1

/** `section`: the body of the custom section. What is malformed is left out: no engine minds, and names are no code. */
export function functionNames(section: Uint8Array): Uint8Array {
  const cursor = cursorOver(section)
  const out = createOut(section.length)
  putName(out, name(cursor))
  try {
    while (cursor.at < cursor.end) {
      const at = cursor.at
      const id = u8(cursor)
      skip(cursor, u32(cursor))
      if (id <= FUNCTION_NAMES) putRange(out, section, at, cursor.at)
    }
  } catch {
    // The subsections before it stand.
  }
  return written(out)
}

// Reads the WASM binary format from hostile bytes: every read is bounded by the cursor's end.
import { AppError } from '#lib/error.ts'

export type Cursor = { readonly bytes: Uint8Array; at: number; readonly end: number }

/** `at` is where its header begins, `start` its body. */
export type Section = { id: number; at: number; start: number; end: number }

/** A refusal that the deployer reads. `reason` is the finer name in the details. */
export const refuse = (reason: string, message: string, next?: string): AppError =>
  new AppError('INVALID', message, { details: next === undefined ? { reason } : { reason, next } })

export const malformed = (cursor: Cursor, what: string): AppError =>
  refuse('MALFORMED', `the binary is malformed at byte ${cursor.at}: ${what}`)

export const cursorOver = (bytes: Uint8Array, at = 0, end = bytes.length): Cursor => ({
  bytes,
  at,
  end,
})

export function u8(cursor: Cursor): number {
  const value = cursor.bytes[cursor.at]
  if (cursor.at >= cursor.end || value === undefined) throw malformed(cursor, 'it ends too early')
  cursor.at++
  return value
}

/** An unsigned LEB128 of at most 32 bits. */
export function u32(cursor: Cursor): number {
  const first = cursor.bytes[cursor.at]
  // Nearly all are one byte.
  if (first !== undefined && first < 0x80 && cursor.at < cursor.end) {
    cursor.at++
    return first
  }
  let value = 0
  for (let shift = 0; shift < 35; shift += 7) {
    const byte = u8(cursor)
    if (shift === 28 && byte > 0x0f) throw malformed(cursor, 'a number is larger than 32 bits')
    value += (byte & 0x7f) * 2 ** shift
    if (byte < 0x80) return value
  }
  throw malformed(cursor, 'a number is longer than 5 bytes')
}

/** Skips a signed or unsigned LEB128 of at most `maxBytes` bytes. */
export function skipLeb(cursor: Cursor, maxBytes: number): void {
  for (let i = 0; i < maxBytes; i++) if (u8(cursor) < 0x80) return
  throw malformed(cursor, `a number is longer than ${maxBytes} bytes`)
}

export function skip(cursor: Cursor, count: number): void {
  if (count > cursor.end - cursor.at) throw malformed(cursor, `${count} bytes are not there`)
  cursor.at += count
}

/** A vector's length; each element takes a byte at least, so a length past the end is a lie. */
export function count(cursor: Cursor): number {
  const value = u32(cursor)
  if (value > cursor.end - cursor.at) throw malformed(cursor, `a list claims ${value} entries`)
  return value
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

export function name(cursor: Cursor): string {
  const length = u32(cursor)
  const start = cursor.at
  skip(cursor, length)
  try {
    return utf8.decode(cursor.bytes.subarray(start, cursor.at))
  } catch {
    throw malformed(cursor, 'a name is not UTF-8')
  }
}

/** The sections after the eight bytes of magic and version. */
export function sectionsOf(bytes: Uint8Array, sectionsMax = 100_000): Section[] {
  const cursor = cursorOver(bytes, 8)
  const sections: Section[] = []
  while (cursor.at < cursor.end) {
    if (sections.length >= sectionsMax) throw malformed(cursor, `more than ${sectionsMax} sections`)
    const at = cursor.at
    const id = u8(cursor)
    const length = u32(cursor)
    const start = cursor.at
    skip(cursor, length)
    sections.push({ id, at, start, end: cursor.at })
  }
  return sections
}

/** Appends an unsigned LEB128. */
export function pushU32(out: number[], value: number): void {
  let left = value
  while (left >= 0x80) {
    out.push((left & 0x7f) | 0x80)
    left = Math.floor(left / 128)
  }
  out.push(left)
}

/** A length-prefixed UTF-8 name. */
export function pushName(out: number[], text: string): void {
  const bytes = new TextEncoder().encode(text)
  pushU32(out, bytes.length)
  out.push(...bytes)
}

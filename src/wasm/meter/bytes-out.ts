// A growing buffer of the binary format's pieces.

export type Out = { bytes: Uint8Array; length: number }

export const createOut = (capacity: number): Out => ({ bytes: new Uint8Array(capacity), length: 0 })

function room(out: Out, more: number): void {
  if (out.length + more <= out.bytes.length) return
  const larger = new Uint8Array(Math.max(out.bytes.length * 2, out.length + more))
  larger.set(out.bytes.subarray(0, out.length))
  out.bytes = larger
}

export function putByte(out: Out, value: number): void {
  room(out, 1)
  out.bytes[out.length++] = value
}

/** An unsigned LEB128 of at most 32 bits. */
export function putU32(out: Out, value: number): void {
  room(out, 5)
  let left = value
  while (left >= 0x80) {
    out.bytes[out.length++] = (left & 0x7f) | 0x80
    left >>>= 7
  }
  out.bytes[out.length++] = left
}

/** A signed LEB128 of what fits 31 bits: the constants that metering adds. */
export function putS32(out: Out, value: number): void {
  room(out, 5)
  let left = value
  while (left < -64 || left > 63) {
    out.bytes[out.length++] = (left & 0x7f) | 0x80
    left >>= 7
  }
  out.bytes[out.length++] = left & 0x7f
}

/** Below it a loop is faster than the call that copies. */
const SHORT = 24

/** Copies `from.subarray(start, end)`. */
export function putRange(out: Out, from: Uint8Array, start: number, end: number): void {
  const size = end - start
  room(out, size)
  if (size > SHORT) out.bytes.set(from.subarray(start, end), out.length)
  else for (let i = 0; i < size; i++) out.bytes[out.length + i] = from[start + i] ?? 0
  out.length += size
}

export function putBytes(out: Out, bytes: ArrayLike<number>): void {
  room(out, bytes.length)
  out.bytes.set(bytes, out.length)
  out.length += bytes.length
}

export function putName(out: Out, text: string): void {
  const bytes = new TextEncoder().encode(text)
  putU32(out, bytes.length)
  putBytes(out, bytes)
}

/** What was written, as a view. */
export const written = (out: Out): Uint8Array => out.bytes.subarray(0, out.length)

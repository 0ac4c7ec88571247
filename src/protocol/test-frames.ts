// Frames as bytes, for tests that play a peer of their own.
import { HEADER_BYTES, writeHeader } from '#protocol/frame.ts'

export function frameOf(
  type: number,
  value: number,
  id: number,
  payload = Buffer.alloc(0),
): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES + payload.length)
  writeHeader(bytes, 0, { type, value, id })
  payload.copy(bytes, HEADER_BYTES)
  return bytes
}

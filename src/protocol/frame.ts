// The wire of the multiplexer: every frame is an 8-byte header, and only DATA carries a payload.
//
//   u8 type | u24 value | u32 stream id      (big-endian)
//
//   OPEN    value = class (0 bulk, 1 small)      CREDIT  value = bytes; id 0 is the pipe itself
//   DATA    value = payload bytes                RESET   value = reason (see RESET_REASONS)
//   FIN     value 0                              PING, PONG  id = which one
//
// Invariants
// 1. A header says everything a control frame says, so the reader holds at most 8 bytes between chunks.
// 2. A payload is handed on as it arrives, in pieces: the reader never buffers one.
// 3. An unknown type, or a payload of 0 or more than PAYLOAD_MAX bytes, is refused: the pipe is cut, nothing is skipped.
import { AppError } from '#lib/error.ts'

export const FRAME = { open: 1, data: 2, credit: 3, fin: 4, reset: 5, ping: 6, pong: 7 } as const
export const HEADER_BYTES = 8
/** Largest DATA payload: four turns, so that one frame never holds a slow link for long. */
export const PAYLOAD_MAX = 64 * 1024
/** Why a stream was reset, by its number on the wire; unknown numbers read as the first. */
export const RESET_REASONS = ['cancelled', 'too many streams', 'out of memory'] as const
export type ResetReason = (typeof RESET_REASONS)[number]

export type FrameSink = {
  header(type: number, value: number, id: number): void
  /** A piece of the payload of the last DATA header. The piece is a view of the chunk. */
  payload(id: number, piece: Buffer): void
}

/** The peer broke the protocol: the pipe is cut. */
export const protocolError = (message: string): AppError =>
  new AppError('INVALID', message, { details: { reason: 'PROTOCOL' } })

/** The frame header as the four fields above. `into` needs HEADER_BYTES at `at`. */
export function writeHeader(
  into: Uint8Array,
  at: number,
  { type, value, id }: { type: number; value: number; id: number },
): void {
  into[at] = type
  into[at + 1] = value >>> 16
  into[at + 2] = value >>> 8
  into[at + 3] = value
  into[at + 4] = id >>> 24
  into[at + 5] = id >>> 16
  into[at + 6] = id >>> 8
  into[at + 7] = id
}

export class FrameReader {
  readonly #sink: FrameSink
  readonly #partial = Buffer.alloc(HEADER_BYTES)
  #have = 0
  #left = 0
  #id = 0

  constructor(sink: FrameSink) {
    this.#sink = sink
  }

  /** Reads one chunk of the pipe; throws a PROTOCOL AppError on what is no frame of ours. */
  push(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#left > 0) {
        const size = Math.min(this.#left, chunk.length - at)
        this.#left -= size
        this.#sink.payload(this.#id, chunk.subarray(at, at + size))
        at += size
      } else if (this.#have === 0 && chunk.length - at >= HEADER_BYTES) {
        this.#header(chunk, at)
        at += HEADER_BYTES
      } else {
        const size = Math.min(HEADER_BYTES - this.#have, chunk.length - at)
        chunk.copy(this.#partial, this.#have, at, at + size)
        this.#have += size
        at += size
        if (this.#have < HEADER_BYTES) return
        this.#have = 0
        this.#header(this.#partial, 0)
      }
    }
  }

  #header(from: Buffer, at: number): void {
    const type = from[at] ?? 0
    const value = from.readUIntBE(at + 1, 3)
    const id = from.readUInt32BE(at + 4)
    if (type < FRAME.open || type > FRAME.pong)
      throw protocolError(`a frame of type ${type}: known are 1 to 7`)
    if (type === FRAME.data) {
      if (value > PAYLOAD_MAX || value === 0)
        throw protocolError(`a payload of ${value} bytes: 1 to ${PAYLOAD_MAX} are allowed`)
      this.#left = value
      this.#id = id
    }
    this.#sink.header(type, value, id)
  }
}

// The child's end of its two pipes. Everything is synchronous: a guest blocks its process, so an event loop
// would only be in its way. Runs inside the restricted child.
import { readSync, writeSync } from 'node:fs'
import { FRAME_BYTES_MAX, frameHeader, HEADER_BYTES } from '#wasm/child/frames.ts'

const DOWN_FD = 0
const UP_FD = 1

/** Frames up to this size leave in one write. */
const SMALL_BYTES = 64 * 1024
const small = new Uint8Array(HEADER_BYTES + SMALL_BYTES)

/** The parent closed the pipe: nobody is left to work for. */
export class ParentGone extends Error {}

function readFully(into: Uint8Array): void {
  let at = 0
  while (at < into.length) {
    const got = readSync(DOWN_FD, into, at, into.length - at, null)
    if (got === 0) throw new ParentGone('the parent closed the pipe')
    at += got
  }
}

function writeFully(bytes: Uint8Array): void {
  let at = 0
  while (at < bytes.length) at += writeSync(UP_FD, bytes, at, bytes.length - at)
}

/** Waits for the next frame. Throws ParentGone at the end of the pipe. */
export function receive(): { kind: number; payload: Uint8Array } {
  const header = new Uint8Array(HEADER_BYTES)
  readFully(header)
  const length = new DataView(header.buffer).getUint32(0, true)
  if (length > FRAME_BYTES_MAX) throw new Error(`a frame of ${length} bytes`)
  const payload = new Uint8Array(length)
  readFully(payload)
  return { kind: header[4] ?? 0, payload }
}

export function send(kind: number, payload: Uint8Array): void {
  const header = frameHeader(kind, payload.length)
  if (payload.length > SMALL_BYTES) {
    writeFully(header)
    writeFully(payload)
    return
  }
  small.set(header)
  small.set(payload, HEADER_BYTES)
  writeFully(small.subarray(0, HEADER_BYTES + payload.length))
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export const sendJson = (kind: number, value: unknown): void =>
  send(kind, encoder.encode(JSON.stringify(value)))

/** What our own parent wrote; it is the trusted side. */
export const parseJson = (payload: Uint8Array): unknown => JSON.parse(decoder.decode(payload))

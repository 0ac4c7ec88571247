// The child's end of its two pipes. Everything is synchronous: a guest blocks its process, so an event loop
// would only be in its way. Runs inside the restricted child.
// 1. A frame leaves in one write: a guest that recursed to the edge of the stack can make a call fail before it or
//    after it, never inside it.
// 2. A call that was cut off so leaves the two sides out of step (a question without its answer taken): the pipe is
//    then `broken`, refuses everything but one last frame, and the child ends.
import { readSync, writeSync } from 'node:fs'
import { FRAME_BYTES_MAX, frameHeader, HEADER_BYTES } from '#wasm/child/frames.ts'

const DOWN_FD = 0
const UP_FD = 1

export type Received = { kind: number; payload: Uint8Array }

/** Set while a call is under way: still set when it is over, it was cut off. */
let underWay = false

function whole<T>(act: () => T): T {
  if (underWay) throw new Error('an earlier call was cut off')
  underWay = true
  const value = act()
  underWay = false
  return value
}

function readFully(into: Uint8Array): void {
  let at = 0
  while (at < into.length) {
    const got = readSync(DOWN_FD, into, at, into.length - at, null)
    if (got === 0) throw new Error('the parent closed the pipe')
    at += got
  }
}

function read(): Received {
  const header = new Uint8Array(HEADER_BYTES)
  readFully(header)
  const length = new DataView(header.buffer).getUint32(0, true)
  if (length > FRAME_BYTES_MAX) throw new Error(`a frame of ${length} bytes`)
  const payload = new Uint8Array(length)
  readFully(payload)
  return { kind: header[4] ?? 0, payload }
}

function write(kind: number, payload: Uint8Array): void {
  const frame = new Uint8Array(HEADER_BYTES + payload.length)
  frame.set(frameHeader(kind, payload.length))
  frame.set(payload, HEADER_BYTES)
  let at = 0
  while (at < frame.length) at += writeSync(UP_FD, frame, at, frame.length - at)
}

export const isBroken = (): boolean => underWay

/** Waits for the next frame. Throws at the end of the pipe: nobody is left to work for. */
export const receive = (): Received => whole(read)

export const send = (kind: number, payload: Uint8Array): void => whole(() => write(kind, payload))

/** Sends a question without content and waits for its answer. */
export const ask = (kind: number): Received =>
  whole(() => {
    write(kind, new Uint8Array(0))
    return read()
  })

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export const sendJson = (kind: number, value: unknown): void =>
  send(kind, encoder.encode(JSON.stringify(value)))

/** Sends over a broken pipe too; end the process after it. */
export const sendLastJson = (kind: number, value: unknown): void =>
  write(kind, encoder.encode(JSON.stringify(value)))

/** What our own parent wrote; it is the trusted side. */
export const parseJson = (payload: Uint8Array): unknown => JSON.parse(decoder.decode(payload))

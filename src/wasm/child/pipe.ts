// The child's end of its two pipes. Everything is synchronous: a guest blocks its process, so an event loop
// would only be in its way. Runs inside the restricted child.
// 1. A frame leaves in one write: a guest that recursed to the edge of the stack can make a call fail before it or
//    after it, never inside it.
// 2. A call that was cut off so leaves the two sides out of step (a question without its answer taken): the pipe is
//    then `broken`, refuses everything but one last frame, and the child ends.
import { readSync, writeSync } from 'node:fs'
import { FRAME_BYTES_MAX, HEADER_BYTES, lengthOf, putHeader } from '#wasm/child/frames.ts'

const DOWN_FD = 0
const UP_FD = 1

/** Holds an invocation with all that may travel in it: 256 KiB of stdin, 128 KiB of arguments and variables in JSON. */
const INBOX_BYTES = 1024 * 1024
/** Holds the longest chunk of output with its header. */
const OUTBOX_BYTES = 64 * 1024

/** `payload` stands until the next frame is received. */
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

/** What was read ahead: a frame and its header come in one call. Larger frames get memory of their own. */
const inbox = new Uint8Array(INBOX_BYTES)
let start = 0
let end = 0

function readSome(into: Uint8Array, at: number): number {
  const got = readSync(DOWN_FD, into, at, into.length - at, null)
  if (got === 0) throw new Error('the parent closed the pipe')
  return got
}

/** Has `count` bytes stand in the inbox from `start`. */
function gather(count: number): void {
  if (start === end) start = end = 0
  else if (start + count > inbox.length) {
    inbox.copyWithin(0, start, end)
    end -= start
    start = 0
  }
  while (end - start < count) end += readSome(inbox, end)
}

function take(count: number): Uint8Array {
  const taken = inbox.subarray(start, start + count)
  start += count
  return taken
}

function takeLarge(count: number): Uint8Array {
  const taken = new Uint8Array(count)
  let at = end - start
  taken.set(take(at))
  while (at < count) at += readSome(taken, at)
  return taken
}

function read(): Received {
  gather(HEADER_BYTES)
  const header = take(HEADER_BYTES)
  const length = lengthOf(header)
  const kind = header[4] ?? 0
  if (length > FRAME_BYTES_MAX) throw new Error(`a frame of ${length} bytes`)
  if (length > inbox.length) return { kind, payload: takeLarge(length) }
  gather(length)
  return { kind, payload: take(length) }
}

/** A frame is put together here, so that it leaves in one call. */
const outbox = new Uint8Array(OUTBOX_BYTES)

function write(kind: number, payload: Uint8Array): void {
  const length = HEADER_BYTES + payload.length
  const frame = length <= outbox.length ? outbox : new Uint8Array(length)
  putHeader(frame, kind, payload.length)
  frame.set(payload, HEADER_BYTES)
  let at = 0
  while (at < length) at += writeSync(UP_FD, frame, at, length - at)
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

// What a guest writes, on its way to the parent.
// 1. A stream is cut at its bound; the guest runs on and the cut is remembered (FN-3). Only a stdout that was asked for
//    whole goes on: then the parent holds the guest back by not reading.
// 2. A write leaves at once, so that it is seen and survives a kill. Only a guest that has written SENDS_FREE times
//    and goes on more than once a millisecond is gathered: then what it wrote in its last millisecond waits for its
//    next call, its end or GATHERED_BYTES_MAX, and is lost if it is killed before. Else byte-wise writers would cost
//    the parent a wake-up a byte.
// 3. No chunk is longer than CHUNK_BYTES_MAX.
import type { Clock } from '#lib/clock.ts'

export type Stream = 'stdout' | 'stderr'

/** FN-3: output past these is cut. */
export const STDOUT_BYTES_MAX = 1024 * 1024
export const STDERR_BYTES_MAX = 256 * 1024

/** With its frame's header it fits one read of the parent's (Node reads 64 KiB at a time). */
export const CHUNK_BYTES_MAX = 64 * 1024 - 64

const SENDS_FREE = 1000
const SENDS_PER_MS = 1
const GATHERED_BYTES_MAX = 4096

export type Output = {
  write: (to: Stream, bytes: Uint8Array) => void
  /** Sends what was gathered. Call before anything that waits, and at the end. */
  flush: () => void
  readonly truncated: Record<Stream, boolean>
}

export type OutputPorts = {
  clock: Clock
  /** Takes the chunk before it returns: its memory is used again. */
  emit: (to: Stream, bytes: Uint8Array) => void
  /** Whether stdout goes on past its bound. */
  stdoutWhole: boolean
}

type Gathered = { bytes: Uint8Array; length: number }

export function createOutput({ clock, emit, stdoutWhole }: OutputPorts): Output {
  const left = {
    stdout: stdoutWhole ? Number.POSITIVE_INFINITY : STDOUT_BYTES_MAX,
    stderr: STDERR_BYTES_MAX,
  }
  const truncated = { stdout: false, stderr: false }
  const gathered: Record<Stream, Gathered | undefined> = { stdout: undefined, stderr: undefined }
  let credit = SENDS_FREE
  let creditAt = clock.monotonic()

  const mayStillSend = (): boolean => {
    if (credit >= 1) return true
    const now = clock.monotonic()
    credit = Math.min(SENDS_FREE, credit + (now - creditAt) * SENDS_PER_MS)
    creditAt = now
    return credit >= 1
  }
  const flushOne = (to: Stream): void => {
    const held = gathered[to]
    if (held === undefined || held.length === 0) return
    emit(to, held.bytes.subarray(0, held.length))
    held.length = 0
    credit--
  }
  const sendNow = (to: Stream, bytes: Uint8Array): void => {
    flushOne(to)
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES_MAX)
      emit(to, bytes.subarray(at, at + CHUNK_BYTES_MAX))
    credit--
  }
  const send = (to: Stream, bytes: Uint8Array): void => {
    if (mayStillSend()) return sendNow(to, bytes)
    const held = (gathered[to] ??= { bytes: new Uint8Array(GATHERED_BYTES_MAX), length: 0 })
    if (bytes.length + held.length > GATHERED_BYTES_MAX) return sendNow(to, bytes)
    held.bytes.set(bytes, held.length)
    held.length += bytes.length
  }
  return {
    truncated,
    write(to, bytes) {
      const fitting = bytes.length > left[to] ? bytes.subarray(0, left[to]) : bytes
      if (fitting.length < bytes.length) truncated[to] = true
      left[to] -= fitting.length
      if (fitting.length > 0) send(to, fitting)
    },
    flush() {
      flushOne('stdout')
      flushOne('stderr')
    },
  }
}

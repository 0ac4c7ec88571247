// What a guest writes, on its way to the parent.
// 1. Each stream is cut at its bound; the guest runs on and the cut is remembered (FN-3).
// 2. A write leaves at once, so that it is seen and survives a kill. Only a guest that has written SENDS_FREE times
//    and goes on more than once a millisecond is gathered: then what it wrote in its last millisecond waits for its
//    next call, its end or GATHERED_BYTES_MAX. Else byte-wise writers would cost the parent a wake-up a byte.
import type { Clock } from '#lib/clock.ts'

export type Stream = 'stdout' | 'stderr'

/** FN-3: output past these is cut. */
export const STDOUT_BYTES_MAX = 1024 * 1024
export const STDERR_BYTES_MAX = 256 * 1024

const SENDS_FREE = 1000
const SENDS_PER_MS = 1
const GATHERED_BYTES_MAX = 4096

export type Output = {
  write: (to: Stream, bytes: Uint8Array) => void
  /** Sends what was gathered. Call before anything that waits, and at the end. */
  flush: () => void
  readonly truncated: Record<Stream, boolean>
}

type Gathered = { bytes: Uint8Array; length: number }

export function createOutput(clock: Clock, emit: (to: Stream, bytes: Uint8Array) => void): Output {
  const left = { stdout: STDOUT_BYTES_MAX, stderr: STDERR_BYTES_MAX }
  const truncated = { stdout: false, stderr: false }
  const empty = (): Gathered => ({ bytes: new Uint8Array(GATHERED_BYTES_MAX), length: 0 })
  const gathered = { stdout: empty(), stderr: empty() }
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
    if (held.length === 0) return
    emit(to, held.bytes.subarray(0, held.length))
    held.length = 0
    credit--
  }
  const send = (to: Stream, bytes: Uint8Array): void => {
    const held = gathered[to]
    if (bytes.length + held.length > GATHERED_BYTES_MAX) {
      flushOne(to)
      emit(to, bytes)
      credit--
      return
    }
    held.bytes.set(bytes, held.length)
    held.length += bytes.length
    if (mayStillSend()) flushOne(to)
  }
  return {
    truncated,
    write(to, bytes) {
      const fitting = bytes.subarray(0, left[to])
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

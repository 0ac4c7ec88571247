// How an invocation ended, in the words that leave this room.

/** What was measured. `memPeakMb` is the guest's linear memory in MiB, null when its child could not say. */
export type Measured = {
  durationMs: number
  memPeakMb: number | null
  stdoutTruncated: boolean
  stderrTruncated: boolean
  /** Units burnt; null when its child could not say. */
  fuelUsed: number | null
}

/**
 * - `exited`: the guest ended itself; `exitCode` 0–255.
 * - `trap`: it broke a rule of WASM (unreachable, out of bounds, call stack exhausted); the message names where.
 * - `memory`: it was refused memory and then trapped, or exhausted its host's.
 * - `fuel`: it burnt what it was given.
 * - `timeout`: killed at its cap.
 * - `cancelled`: the caller's signal.
 * - `fault`: the runner itself failed; never the workload's doing, so it may be tried elsewhere.
 */
export type RunOutcome = Measured &
  (
    | { kind: 'exited'; exitCode: number }
    | { kind: 'trap' | 'memory' | 'fuel' | 'timeout' | 'cancelled' | 'fault'; message: string }
  )

// How a session ends, as a value (never a throw), and when to dial again.
//
// Invariants
// 1. Only `fatal` and `drained` leave the supervisor's loop.
// 2. The backoff is forgotten after STEADY_MS of service, not at the first welcome: an engine that welcomes and drops
//    must not be hammered.
import { backoffMs } from '#lib/backoff.ts'
import type { Random } from '#lib/random.ts'
import type { Transport } from '#protocol/pipe.ts'
import { DIAL_BACKOFF_EARLY_MS, DIAL_BACKOFF_MAX_MS, DIAL_EARLY_MS } from '#core/node/limits.ts'

export type Outcome =
  /** It was welcomed, worked, and is over. `spreadMs`: the engine asked to wait up to this long. */
  | {
      kind: 'served'
      upMs: number
      spreadMs: number
      transport: Transport
      reason: string
      message: string
    }
  /** This side left on purpose. */
  | { kind: 'drained' }
  /** It was never welcomed; another try may do better. */
  | { kind: 'retryable'; reason: string; message: string }
  /** Nothing changes until somebody acts. */
  | { kind: 'fatal'; reason: string; message: string }

const STEADY_MS = 5_000
const BACKOFF_BASE_MS = 100

/** What the supervisor remembers between sessions. `since`: monotonic time of the first failure in a row. */
export type Failures = { count: number; since: number }
export const NO_FAILURES: Failures = { count: 0, since: 0 }

/** How long to wait before the next dial, and what to remember. */
export function redial(
  outcome: Extract<Outcome, { kind: 'served' | 'retryable' }>,
  failures: Failures,
  { now, random }: { now: number; random: Random },
): { waitMs: number; failures: Failures } {
  if (outcome.kind === 'served' && outcome.upMs >= STEADY_MS)
    return { waitMs: random.float() * outcome.spreadMs, failures: NO_FAILURES }
  const since = failures.count === 0 ? now : failures.since
  const capMs = now - since < DIAL_EARLY_MS ? DIAL_BACKOFF_EARLY_MS : DIAL_BACKOFF_MAX_MS
  const waitMs = backoffMs(failures.count, { baseMs: BACKOFF_BASE_MS, capMs }, random)
  return { waitMs, failures: { count: failures.count + 1, since } }
}

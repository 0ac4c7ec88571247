// Which transports the next dial tries, after a session that worked: the one that it used, for a while.
//
// Invariants
// 1. Where UDP is blocked it fails by silence: an engine that restarted is found sooner without it (WAY_TCP_MS).
// 2. Where UDP works, an engine that a whole fleet comes back to answers late, and racing TCP against it would double
//    what it has to do: QUIC alone is tried WAY_QUIC_DIALS times.
// 3. Neither lasts: networks change, and then the race of both decides.
import { DIAL_EARLY_MS } from '#core/node/limits.ts'
import type { Transport } from '#protocol/pipe.ts'

/** The last session that was welcomed: its transport, when it ended (monotonic), and the dials since. */
export type LastWay = { transport: Transport; endedAt: number; dials: number }

const WAY_TCP_MS = DIAL_EARLY_MS
/** Two dials of three seconds: then UDP may be what is wrong. */
const WAY_QUIC_DIALS = 2

/** Undefined: both, raced. */
export function waysOf(last: LastWay | undefined, now: number): readonly Transport[] | undefined {
  if (!last) return undefined
  const keeps =
    last.transport === 'tls' ? now - last.endedAt < WAY_TCP_MS : last.dials < WAY_QUIC_DIALS
  return keeps ? [last.transport] : undefined
}

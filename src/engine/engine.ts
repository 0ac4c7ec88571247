// All that the engine touches outside itself: one flat record, built in bin and in sim, nowhere else (rule 4).
import type { Keyring } from '#store/keyring.ts'
import type { Blobs } from '#store/blobs.ts'
import type { Store } from '#store/connect.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import type { Loop } from '#lib/loop.ts'
import type { Random } from '#lib/random.ts'
import type { EngineConfig } from '#engine/config.ts'
import type { Auth } from '#engine/auth.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import type { Metrics } from '#engine/metrics.ts'
import type { RateLimit } from '#engine/rate-limit.ts'

export type Engine = {
  /** This engine's own id: the same after a restart on the same keyring. */
  id: string
  version: string
  config: EngineConfig
  clock: Clock
  random: Random
  log: Logger
  metrics: Metrics
  rateLimit: RateLimit
  /** Calls without a transaction that run here now, by idempotency key: a claim of ours that has none is dead. */
  claims: Map<string, number>
  db: Store
  keyring: Keyring
  blobs: Blobs
  auth: Auth
  gateway: Gateway
  invoker: Invoker
  /** All that run, for their status (rule 7). */
  loops: readonly Loop[]
}

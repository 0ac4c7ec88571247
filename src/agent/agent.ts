// All that the agent touches outside itself: one flat record, built in bin and in tests, nowhere else (rule 4).
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import type { AgentConfig } from '#agent/config.ts'
import type { Driver } from '#agent/driver.ts'
import type { Enrollment } from '#agent/enrollment.ts'
import type { Journal } from '#agent/journal.ts'
import type { Manifest } from '#protocol/messages.ts'
import type { Jail } from '#wasm/jail/jail.ts'

export type Agent = {
  version: string
  config: AgentConfig
  clock: Clock
  random: Random
  log: Logger
  journal: Journal
  enrollment: Enrollment
  jail: Jail
  manifest: Manifest
  drivers: readonly Driver[]
}

// Keeps the engine's slots and their rows the same, and gives idle ones back (D43, ND-22).
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Invoker } from '#engine/functions/invoker.ts'

/** A slot is held at most this much longer than SLOT_IDLE_MS. */
const EVERY_MS = 5_000

/** Its first pass adopts the slots of the engine's former self. */
export const slotsLoop = (deps: { invoker: Invoker; clock: Clock; log: Logger }): Loop =>
  new Loop({ name: 'slots', everyMs: EVERY_MS, pass: () => deps.invoker.tidySlots() }, deps)

// Writes the history of invocations in batches (FN-7). The invoker's `stop` writes the last one.
import { HISTORY_FLUSH_MS } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Invoker } from '#engine/functions/invoker.ts'

export function historyLoop(deps: { invoker: Invoker; clock: Clock; log: Logger }): Loop {
  const pass = async (): Promise<{ written: number }> => ({
    written: await deps.invoker.flushHistory(),
  })
  return new Loop({ name: 'history', everyMs: HISTORY_FLUSH_MS, pass }, deps)
}

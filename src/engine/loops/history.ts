// Writes the history of invocations in batches (FN-7). The invoker's `stop` writes the last one.
import { HISTORY_FLUSH_MS } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Invoker } from '#engine/functions/invoker.ts'

export const historyLoop = (deps: { invoker: Invoker; clock: Clock; log: Logger }): Loop =>
  new Loop({ name: 'history', everyMs: HISTORY_FLUSH_MS, pass: () => pass(deps.invoker) }, deps)

async function pass(invoker: Invoker): Promise<Record<string, unknown>> {
  try {
    return { written: await invoker.flushHistory() }
  } catch (error) {
    // The store is away: the rows wait, and five lines a second would tell nobody more than the status does.
    if (error instanceof AppError && error.code === 'UNAVAILABLE') return { waits: error.message }
    throw error
  }
}

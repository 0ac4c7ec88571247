// Drops what functions leave behind: old history, versions beyond those kept, bytes that nothing names (FN-7, OP-10).
import { HISTORY_KEPT_MS, VERSIONS_KEPT } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Blobs } from '#store/blobs.ts'
import { forgetUnused } from '#store/components.ts'
import { type Store, transaction } from '#store/connect.ts'
import { pruneVersions } from '#store/functions.ts'
import { pruneInvocations } from '#store/invocations.ts'

const EVERY_MS = 10 * 60_000
/** A component that is being deployed is younger, and so is one that a slow invocation of a dropped version sends. */
const UNUSED_KEPT_MS = 3_600_000
/** Components of one pass: their bytes are removed while their rows are locked. */
const COMPONENTS_MAX = 100

export type PruneDeps = { db: Store; blobs: Blobs; clock: Clock; log: Logger }

export const historyPruneLoop = (deps: PruneDeps): Loop =>
  new Loop({ name: 'history-prune', everyMs: EVERY_MS, pass: () => pruneFunctions(deps) }, deps)

/** One pass. */
export async function pruneFunctions(
  deps: Omit<PruneDeps, 'log'>,
): Promise<{ invocations: number; versions: number; blobs: number }> {
  const { db, blobs, clock } = deps
  const now = clock.now()
  let invocations = 0
  for (let some = 1; some > 0; invocations += some)
    some = await pruneInvocations(db, new Date(now - HISTORY_KEPT_MS))
  const versions = await pruneVersions(db, VERSIONS_KEPT)
  const removed = await transaction(db, async (tx) => {
    const hashes = await forgetUnused(tx, {
      before: new Date(now - UNUSED_KEPT_MS),
      limit: COMPONENTS_MAX,
    })
    // Before the commit: a deploy of the same bytes waits for these rows, and then puts the bytes again.
    for (const sha256 of hashes) await blobs.delete(sha256)
    return hashes.length
  })
  return { invocations, versions, blobs: removed }
}

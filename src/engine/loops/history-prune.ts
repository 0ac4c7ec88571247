// Drops what functions leave behind: old history, versions beyond those kept, components that were sent ahead and never
// deployed, bytes that nothing names (FN-1, FN-7, OP-10).
import { HISTORY_KEPT_MS, UPLOAD_KEPT_MS, VERSIONS_KEPT } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Blobs } from '#store/blobs.ts'
import { forgetUnused, unusedComponents } from '#store/functions/components.ts'
import { type Store, transaction } from '#store/connect.ts'
import { pruneVersions } from '#store/functions/functions.ts'
import { pruneInvocations } from '#store/functions/invocations.ts'
import { pruneUploads } from '#store/functions/uploads.ts'

const EVERY_MS = 10 * 60_000
/** A component that is being deployed is younger. */
const UNUSED_KEPT_MS = 3_600_000
/** Components of one transaction: their bytes are removed while their rows are locked. */
const COMPONENTS_AT_ONCE = 100
/** Of one pass: more than orgs leave behind between two. */
const COMPONENTS_MAX = 10_000

export type PruneDeps = { db: Store; blobs: Blobs; clock: Clock; log: Logger }

export function historyPruneLoop(deps: PruneDeps): Loop {
  // What was unused a pass ago: an invocation that still wanted its bytes has ended since.
  let unused: readonly string[] = []
  const pass = async (): Promise<Record<string, unknown>> => {
    const { unused: found, ...counts } = await pruneFunctions(deps, unused)
    unused = found
    return counts
  }
  return new Loop({ name: 'history-prune', everyMs: EVERY_MS, pass }, deps)
}

export type Pruned = {
  invocations: number
  versions: number
  uploads: number
  blobs: number
  unused: string[]
}

/** One pass; `unused` are the components that were unused at the pass before. */
export async function pruneFunctions(
  deps: Omit<PruneDeps, 'log'>,
  unused: readonly string[],
): Promise<Pruned> {
  const { db, blobs, clock } = deps
  const now = clock.now()
  let invocations = 0
  for (let some = 1; some > 0; invocations += some)
    some = await pruneInvocations(db, new Date(now - HISTORY_KEPT_MS))
  const versions = await pruneVersions(db, VERSIONS_KEPT)
  const uploads = await pruneUploads(db, now - UPLOAD_KEPT_MS)
  const before = new Date(now - UNUSED_KEPT_MS)
  let removed = 0
  for (let at = 0; at < unused.length; at += COMPONENTS_AT_ONCE)
    removed += await transaction(db, async (tx) => {
      const some = unused.slice(at, at + COMPONENTS_AT_ONCE)
      const hashes = await forgetUnused(tx, some, before)
      // Before the commit: a deploy of the same bytes waits for these rows, and then puts the bytes again.
      for (const sha256 of hashes) await blobs.delete(sha256)
      return hashes.length
    })
  const found = await unusedComponents(db, { before, limit: COMPONENTS_MAX })
  return { invocations, versions, uploads, blobs: removed, unused: found }
}

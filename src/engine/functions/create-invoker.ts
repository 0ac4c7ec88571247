// The parts that run functions, put together.
import { SLOT_IDLE_MS } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import type { Blobs } from '#store/blobs.ts'
import type { Store } from '#store/connect.ts'
import type { Change } from '#store/notify.ts'
import { PREPARER, prepare } from '#wasm/prepare.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'
import { Admission } from '#engine/functions/admission.ts'
import { Artifacts, type Prepare } from '#engine/functions/artifacts.ts'
import { Catalog } from '#engine/functions/catalog.ts'
import { History } from '#engine/functions/history.ts'
import { invokeOnce, type InvocationParts } from '#engine/functions/invocation.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import { Ticks } from '#engine/functions/known.ts'
import { OrgCounts } from '#engine/functions/org-counts.ts'
import { Placer } from '#engine/functions/placer.ts'
import { SlotKeeper } from '#engine/functions/slot-keeper.ts'
import { SlotTable } from '#engine/functions/slot-table.ts'

/** Sessions that begin within this time of each other cost one look at the slots. */
const ADOPT_AFTER_MS = 50

export type InvokerDeps = {
  id: string
  db: Store
  blobs: Blobs
  clock: Clock
  random: Random
  log: Logger
  metrics: Metrics
  gateway: Gateway
  /** How components are prepared; the disposable child unless a test says otherwise. */
  prepare?: Prepare
}

export function createInvoker(deps: InvokerDeps): Invoker {
  const parts = partsOf(deps)
  const { admission, artifacts, catalog, counts, history } = parts
  const tidy = (): Promise<Record<string, unknown>> => admission.tidy(SLOT_IDLE_MS)
  const stopListening = listen(deps, parts, tidy)
  let running = 0
  return {
    async invoke(request) {
      const { orgId } = request
      const entry = counts.enter(orgId, catalog.sureQuota(orgId))
      running++
      try {
        return await invokeOnce(parts, request, entry)
      } finally {
        counts.leave(orgId, entry)
        running--
      }
    },
    publicOrg: ({ org, name }) => catalog.publicOrg(org, name),
    changed: (change) => take(parts, change, deps.id),
    hearing(hearing) {
      catalog.hearing = hearing
      // What was told meanwhile was not heard.
      if (hearing) admission.wake()
    },
    prepare: (component, of) => artifacts.deploy(component, of),
    tidySlots: tidy,
    flushHistory: () => history.flush(),
    running: () => running,
    async stop() {
      stopListening()
      await history.flush().catch((error: unknown) => {
        deps.log.error({ err: error }, 'the last of the history is lost: the store is away')
      })
    },
  }
}

function partsOf(deps: InvokerDeps): InvocationParts {
  const ticks = new Ticks()
  const table = new SlotTable(ticks)
  const catalog = new Catalog({ ...deps, preparer: PREPARER, ticks, table })
  const placer = new Placer(deps)
  const slots = { ...deps, ticks, table, catalog, placer }
  const admission = new Admission(slots, (freed) => new SlotKeeper({ ...slots, freed }))
  const artifacts = new Artifacts({ prepare, ...deps })
  return { ...slots, admission, artifacts, history: new History(deps), counts: new OrgCounts() }
}

function take({ admission, catalog }: InvocationParts, change: Change, ownId: string): void {
  switch (change.kind) {
    case 'node':
      catalog.nodeChanged(change.id)
      return admission.wake()
    case 'function':
      catalog.functionChanged(change.id)
      return admission.supersede(change.id, change.version)
    case 'quota':
      return catalog.quotaChanged(change.orgId)
    case 'engine':
      // Another took us for dead, and may have our nodes: what we know of them is not so any more.
      if (change.id === ownId) catalog.allNodesChanged()
  }
}

/** A node came or went: those who wait look again, and its slots are adopted, a whole fleet's at once. */
function listen(
  { clock, gateway, log }: InvokerDeps,
  { admission, catalog }: InvocationParts,
  tidy: () => Promise<unknown>,
): () => void {
  let tidying = false
  return gateway.onChange((nodeRecordId) => {
    catalog.nodeChanged(nodeRecordId)
    admission.wake()
    if (tidying) return
    tidying = true
    clock.after(ADOPT_AFTER_MS, () => {
      tidying = false
      tidy().catch((error: unknown) => log.warn({ err: error }, messageOf(error)))
    })
  })
}

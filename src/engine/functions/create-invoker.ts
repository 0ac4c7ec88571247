// One invocation from admission to its outcome, and the parts that it needs.
import { answerOf, type End } from '#core/function/answer.ts'
import { SLOT_IDLE_MS, WAIT_FOR_ROOM_MS } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import type { Blobs } from '#store/blobs.ts'
import type { Store } from '#store/connect.ts'
import { functionToRun } from '#store/functions/runnable.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import type { SlotRow } from '#store/slots.ts'
import { PREPARER, prepare } from '#wasm/prepare.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'
import { Admission } from '#engine/functions/admission.ts'
import { Artifacts, type Prepare } from '#engine/functions/artifacts.ts'
import { History } from '#engine/functions/history.ts'
import type { Invoked, Invoker, InvokeRequest } from '#engine/functions/invoker.ts'
import { Placer } from '#engine/functions/placer.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { type Run, runOnNode } from '#engine/functions/run-stream.ts'
import type { Slot } from '#engine/functions/slot-table.ts'

/** Nodes that one invocation tries while nothing has run: a second bad node in a row is the fleet's trouble. */
const TRIES_MAX = 3

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

type Parts = InvokerDeps & {
  admission: Admission
  placer: Placer
  artifacts: Artifacts
  history: History
}

export function createInvoker(deps: InvokerDeps): Invoker {
  const placer = new Placer(deps)
  const admission = new Admission({ ...deps, placer })
  const artifacts = new Artifacts({ prepare, ...deps })
  const history = new History(deps)
  const parts: Parts = { ...deps, placer, admission, artifacts, history }
  const tidy = (): Promise<Record<string, unknown>> => admission.tidy(SLOT_IDLE_MS)
  let tidying = false
  const stopListening = deps.gateway.onChange(() => {
    // A node came or went: those who wait look again, and its slots are adopted, a whole fleet's at once.
    admission.wake()
    if (tidying) return
    tidying = true
    deps.clock.after(ADOPT_AFTER_MS, () => {
      tidying = false
      tidy().catch((error: unknown) => deps.log.warn({ err: error }, messageOf(error)))
    })
  })
  let running = 0
  return {
    async invoke(request) {
      running++
      try {
        return await invoke(parts, request)
      } finally {
        running--
      }
    },
    wake: () => admission.wake(),
    prepare: (component, of) => artifacts.deploy(component, of),
    supersede: (functionId, current) => admission.supersede(functionId, current),
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

type Tried = { run: Run; slot: Slot } | { none: End }

async function invoke(parts: Parts, request: InvokeRequest): Promise<Invoked> {
  const { clock, db } = parts
  const { orgId, name } = request
  const began = clock.monotonic()
  const startedAt = clock.now()
  const found = await functionToRun(db, { orgId, name, preparer: PREPARER, engineId: parts.id })
  if (!found) throw noSuchFunction(name)
  const { fn, slots } = found
  const artifact = found.artifact ?? (await parts.artifacts.again(fn, new Date(startedAt)))
  const id = newId('inv', startedAt, parts.random)
  const tried = await tryNodes(parts, { fn, artifact, slots, request, id, began })
  const invoked = toInvoked(tried, clock.monotonic() - began)
  record(parts, { id, fn, startedAt, tried, invoked })
  return invoked
}

type Attempt = {
  fn: FunctionRow
  artifact: { sha256: string; sizeBytes: number }
  /** As they were when the invocation began: for the first try. */
  slots: readonly SlotRow[]
  request: InvokeRequest
  id: string
  /** Monotonic. */
  began: number
}

/** Tries nodes until the guest may have acted on one, or none is left. */
async function tryNodes(parts: Parts, attempt: Attempt): Promise<Tried> {
  const { admission, clock, gateway } = parts
  const { fn, request, began } = attempt
  const exclude = new Set<string>()
  let failed: { run: Run; slot: Slot } | undefined
  for (let tries = 1; ; tries++) {
    // After a node's failure others are tried, not waited for; a lost session may come back.
    const faulty = failed?.run.end.kind === 'fault'
    const waitMs = faulty ? 0 : Math.max(0, began + WAIT_FOR_ROOM_MS - clock.monotonic())
    const { signal } = request
    const rows = tries === 1 ? { rows: attempt.slots } : {}
    const admitted = await admission.acquire({ fn, exclude, waitMs, signal, ...rows })
    if (admitted.kind !== 'slot') return failed ?? { none: admitted }
    const { slot } = admitted
    const run = await runIn(parts, slot, attempt)
    if (run.end.kind === 'fault') parts.placer.failed(slot.row.nodeRecordId)
    const again = (run.end.kind === 'fault' || run.end.kind === 'node-lost') && !run.acted
    if (!again || tries === TRIES_MAX) return { run, slot }
    failed = { run, slot }
    if (run.end.kind === 'fault' || gateway.session(slot.row.nodeRecordId))
      exclude.add(slot.row.nodeRecordId)
  }
}

async function runIn(parts: Parts, slot: Slot, attempt: Attempt): Promise<Run> {
  const { admission, artifacts, placer } = parts
  const { fn, artifact, request, id } = attempt
  const { nodeRecordId, nodeId } = slot.row
  let giveUp = false
  try {
    const run = await runOnNode(parts, {
      nodeRecordId,
      nodeName: nodeId,
      header: {
        t: 'invoke',
        id,
        functionId: fn.id,
        artifact: { sha256: artifact.sha256, bytes: artifact.sizeBytes },
        memMb: fn.memMb,
        cpuMillis: fn.cpuMillis,
        ...(fn.fuelMax === null ? {} : { fuelMax: fn.fuelMax }),
        timeoutMs: request.timeoutMs ?? fn.timeoutMs,
        args: [...request.args],
        env: Object.entries(request.env),
      },
      stdin: request.stdin,
      artifact: () => artifacts.read(artifact.sha256),
      signal: request.signal,
    })
    if (run.had !== undefined) placer.holds(fn.componentSha256, nodeRecordId)
    giveUp = run.end.kind === 'fault'
    return run
  } finally {
    admission.release(slot, { giveUp })
  }
}

const EMPTY = new Uint8Array()

function toInvoked(tried: Tried, elapsedMs: number): Invoked {
  if ('none' in tried)
    return {
      outcome: tried.none,
      durationMs: elapsedMs,
      memPeakMb: null,
      fuelUsed: null,
      stdout: EMPTY,
      stderr: EMPTY,
      stdoutTruncated: false,
      stderrTruncated: false,
      node: null,
    }
  const { run, slot } = tried
  const { end, acted: _acted, had: _had, ...rest } = run
  const { nodeId, trustTier } = slot.row
  return { outcome: end, ...rest, node: { nodeId, trustTier } }
}

type Recorded = {
  id: string
  fn: FunctionRow
  startedAt: number
  tried: Tried
  invoked: Invoked
}

function record(parts: Parts, { id, fn, startedAt, tried, invoked }: Recorded): void {
  const answer = answerOf(invoked.outcome)
  const failure = answer.ok ? undefined : answer
  const outcome = answer.ok ? 'ok' : (answer.reason ?? 'cancelled')
  parts.metrics.invocations.inc({ outcome })
  parts.metrics.invocationSeconds.observe(invoked.durationMs / 1000)
  const row = 'none' in tried ? undefined : tried.slot.row
  parts.history.add({
    id,
    orgId: fn.orgId,
    functionId: fn.id,
    functionName: fn.name,
    version: fn.version,
    nodeId: row?.nodeRecordId ?? null,
    nodeName: row?.nodeId ?? null,
    trustTier: row?.trustTier ?? null,
    startedAt: new Date(startedAt),
    durationMs: Math.round(invoked.durationMs),
    ok: answer.ok,
    exitCode: answer.exitCode,
    reason: failure?.reason ?? null,
    error: failure?.error ?? null,
    memPeakMb: invoked.memPeakMb === null ? null : Math.ceil(invoked.memPeakMb),
    fuelUsed: invoked.fuelUsed,
    stdoutBytes: invoked.stdout.length,
    stderrBytes: invoked.stderr.length,
  })
}

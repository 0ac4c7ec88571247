// One invocation: from the function's name to its outcome, over as many nodes as it takes.
import { answerOf, type End } from '#core/function/answer.ts'
import { WAIT_FOR_ROOM_MS } from '#core/function/limits.ts'
import type { PlacementNode } from '#core/node/node.ts'
import type { Clock } from '#lib/clock.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import type { FunctionRow } from '#store/functions/functions.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'
import type { Admission } from '#engine/functions/admission.ts'
import type { Artifacts } from '#engine/functions/artifacts.ts'
import type { Catalog, KnownFunction } from '#engine/functions/catalog.ts'
import type { History } from '#engine/functions/history.ts'
import type { Invoked, InvokeRequest } from '#engine/functions/invoker.ts'
import type { Entry, OrgCounts } from '#engine/functions/org-counts.ts'
import type { Placer } from '#engine/functions/placer.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { type Run, runOnNode } from '#engine/functions/run-stream.ts'
import type { Slot } from '#engine/functions/slot-table.ts'

/** Nodes that one invocation tries while nothing has run: a second bad node in a row is the fleet's trouble. */
const TRIES_MAX = 3

export type InvocationParts = {
  clock: Clock
  random: Random
  metrics: Metrics
  gateway: Gateway
  catalog: Catalog
  counts: OrgCounts
  admission: Admission
  placer: Placer
  artifacts: Artifacts
  history: History
}

type OnNode = { run: Run; slot: Slot; node: PlacementNode }
type Tried = OnNode | { none: End }

export async function invokeOnce(
  parts: InvocationParts,
  request: InvokeRequest,
  entry: Entry,
): Promise<Invoked> {
  const { catalog, clock, counts } = parts
  const { orgId, name } = request
  const began = clock.monotonic()
  const startedAt = clock.now()
  const sure = catalog.known(orgId, name)
  const known = sure ?? (await catalog.read(orgId, name))
  if (!known) throw noSuchFunction(name)
  counts.admit(orgId, entry, catalog.quota(orgId))
  const artifact = known.artifact ?? (await parts.artifacts.again(known.fn, new Date(startedAt)))
  const id = newId('inv', startedAt, parts.random)
  const isRead = sure === undefined && known.artifact !== undefined
  const attempt = { known, artifact, request, id, began, isRead }
  const tried = await tryNodes(parts, attempt)
  const invoked = toInvoked(tried, clock.monotonic() - began)
  record(parts, { id, fn: known.fn, startedAt, tried, invoked })
  return invoked
}

type Attempt = {
  known: KnownFunction
  artifact: { sha256: string; sizeBytes: number }
  request: InvokeRequest
  id: string
  /** Monotonic. */
  began: number
  /** The slots were read just now: for the first try. */
  isRead: boolean
}

/**
 * Tries nodes until the guest may have acted on one, or none is left. What acted on a node that went away or failed is
 * done once more, elsewhere, if the function says that it may be (FN-6) and nothing of it has been seen.
 */
async function tryNodes(parts: InvocationParts, attempt: Attempt): Promise<Tried> {
  const { admission, clock, gateway } = parts
  const { known, request, began } = attempt
  const { signal } = request
  const exclude = new Set<string>()
  let failed: OnNode | undefined
  let repeated = false
  for (let tries = 1; ; tries++) {
    // After a node's failure others are tried, not waited for; a lost session may come back.
    const faulty = failed?.run.end.kind === 'fault'
    const left = repeated ? WAIT_FOR_ROOM_MS : began + WAIT_FOR_ROOM_MS - clock.monotonic()
    const waitMs = faulty ? 0 : Math.max(0, left)
    const wanted = { known, exclude, waitMs, signal }
    let tried: Tried
    try {
      const admitted = await admission.acquire(wanted, tries === 1 && attempt.isRead)
      tried =
        admitted.kind === 'slot'
          ? { ...admitted, run: await runIn(parts, admitted, attempt) }
          : { none: admitted }
    } catch (error) {
      // A rejection says that nothing ran. Where something has, its caller hears how that ended.
      if (failed && repeated) return failed
      throw error
    }
    if ('none' in tried) return failed ?? tried
    const { run, slot, node } = tried
    const { nodeRecordId } = slot.row
    if (run.end.kind === 'fault') parts.placer.failed(nodeRecordId)
    const nodeFailed = run.end.kind === 'fault' || run.end.kind === 'node-lost'
    const repeats: boolean = run.acted && known.fn.idempotent && !run.seen && !repeated
    if (!nodeFailed || tries === TRIES_MAX || (run.acted && !repeats)) return { run, slot, node }
    failed = { run, slot, node }
    repeated ||= repeats
    if (repeats || run.end.kind === 'fault' || gateway.session(nodeRecordId))
      exclude.add(nodeRecordId)
  }
}

async function runIn(
  parts: InvocationParts,
  { slot, node }: { slot: Slot; node: PlacementNode },
  attempt: Attempt,
): Promise<Run> {
  const { admission, artifacts, placer } = parts
  const { known, artifact, request, id } = attempt
  const { fn } = known
  const { nodeRecordId } = slot.row
  let giveUp = false
  const held = placer.isHolder(fn.componentSha256, nodeRecordId)
  try {
    const run = await runOnNode(parts, {
      nodeRecordId,
      nodeName: node.nodeId,
      header: {
        t: 'invoke',
        id,
        functionId: fn.id,
        artifact: { sha256: artifact.sha256, bytes: artifact.sizeBytes },
        memMb: fn.memMb,
        cpuMillis: fn.cpuMillis,
        ...(fn.fuelMax === null ? {} : { fuelMax: fn.fuelMax }),
        ...(request.onStdout ? { stdout: 'whole' as const } : {}),
        timeoutMs: request.timeoutMs ?? fn.timeoutMs,
        args: [...request.args],
        env: Object.entries(request.env),
        ...(held ? withHeader(request.stdin) : {}),
      },
      stdin: request.stdin,
      onStdout: request.onStdout,
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

/** A node that has the artifact can begin with the header: a round trip less. What is longer is no slower in pieces. */
const STDIN_WITH_HEADER_MAX = 8 * 1024

const withHeader = (stdin: InvokeRequest['stdin']): { stdin?: Uint8Array } =>
  stdin instanceof Uint8Array && stdin.length <= STDIN_WITH_HEADER_MAX ? { stdin } : {}

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
  const { run, node } = tried
  const { nodeId, trustTier } = node
  return {
    outcome: run.end,
    durationMs: run.durationMs,
    memPeakMb: run.memPeakMb,
    fuelUsed: run.fuelUsed,
    stdout: run.stdout,
    stderr: run.stderr,
    stdoutTruncated: run.stdoutTruncated,
    stderrTruncated: run.stderrTruncated,
    node: { nodeId, trustTier },
  }
}

type Recorded = {
  id: string
  fn: FunctionRow
  startedAt: number
  tried: Tried
  invoked: Invoked
}

function record(parts: InvocationParts, { id, fn, startedAt, tried, invoked }: Recorded): void {
  const answer = answerOf(invoked.outcome)
  const failure = answer.ok ? undefined : answer
  const outcome = answer.ok ? 'ok' : (answer.reason ?? 'cancelled')
  parts.metrics.invocations.inc({ outcome })
  parts.metrics.invocationSeconds.observe(invoked.durationMs / 1000)
  const on = 'none' in tried ? undefined : tried
  parts.history.add({
    id,
    orgId: fn.orgId,
    functionId: fn.id,
    functionName: fn.name,
    version: fn.version,
    nodeId: on?.node.id ?? null,
    nodeName: on?.node.nodeId ?? null,
    trustTier: on?.node.trustTier ?? null,
    startedAt: new Date(startedAt),
    durationMs: Math.round(invoked.durationMs),
    ok: answer.ok,
    exitCode: answer.exitCode,
    reason: failure?.reason ?? null,
    error: failure?.error ?? null,
    memPeakMb: invoked.memPeakMb === null ? null : Math.ceil(invoked.memPeakMb),
    fuelUsed: invoked.fuelUsed,
    stdoutBytes: on?.run.stdoutBytes ?? 0,
    stderrBytes: invoked.stderr.length,
  })
}

// What the rest of the engine asks of the part that runs functions.
import type { TrustTier } from '#core/node/node.ts'
import type { Outcome } from '#protocol/messages.ts'
import type { Change } from '#store/notify.ts'
import type { For, Prepared, Stored } from '#engine/functions/artifacts.ts'

export type InvokeRequest = {
  orgId: string
  name: string
  args: readonly string[]
  env: Readonly<Record<string, string>>
  /** What comes in pieces is read as the guest asks, and the invocation is not tried elsewhere once it was touched. */
  stdin: Uint8Array | AsyncIterable<Uint8Array>
  /**
   * Given: stdout goes here as it comes, whole, and the guest is held back until each piece is taken; `Invoked.stdout`
   * stays empty. Absent: stdout is collected and cut.
   */
  onStdout?: (bytes: Uint8Array) => void | Promise<void>
  /** Undefined: the function's own. */
  timeoutMs: number | undefined
  signal: AbortSignal
}

export type Invoked = {
  /** `no-node` and `node-lost` never reached a guest's end; everything else is the node's report. */
  outcome: Outcome | { kind: 'no-node'; message: string } | { kind: 'node-lost'; message: string }
  durationMs: number
  memPeakMb: number | null
  fuelUsed: number | null
  stdout: Uint8Array
  stderr: Uint8Array
  stdoutTruncated: boolean
  stderrTruncated: boolean
  node: { nodeId: string; trustTier: TrustTier } | null
}

export type Invoker = {
  /**
   * Rejects with AppError only for refusals before anything ran: NOT_FOUND, QUOTA_EXCEEDED (AC-6), UNAVAILABLE (the store
   * is away, the node is at another engine).
   */
  invoke(request: InvokeRequest): Promise<Invoked>
  /** The id of the org, by id or slug, when it has a function of this name that anybody may invoke; else undefined. */
  publicOrg(of: { org: string; name: string }): Promise<string | undefined>
  /**
   * A row that invocations depend on has changed: call it when the change is committed. The next invocation sees it, and
   * those that wait look again. What other engines change comes by `pg_notify`.
   */
  changed(change: Change): void
  /** Whether changes made elsewhere are heard of now; while they are not, every invocation reads. */
  hearing(hearing: boolean): void
  /** Checks and prepares what is to be deployed; see `Artifacts.deploy`. */
  prepare(component: Uint8Array | Stored, of: For): Promise<Prepared>
  /** One pass over the slots: adopts, forgets, gives back what was idle for SLOT_IDLE_MS. */
  tidySlots(): Promise<Record<string, unknown>>
  /** Writes the history that was not written yet; returns how many rows. */
  flushHistory(): Promise<number>
  /** Invocations under way, for a shutdown that waits. */
  running(): number
  /** Stops listening to the gateway and flushes the history. Invocations under way are the caller's to wait for. */
  stop(): Promise<void>
}

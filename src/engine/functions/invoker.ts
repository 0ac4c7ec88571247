// What the procedures ask of the part that runs functions: one invocation, from admission to its outcome.
import type { Outcome } from '#protocol/messages.ts'

export type InvokeRequest = {
  orgId: string
  name: string
  args: readonly string[]
  env: Readonly<Record<string, string>>
  stdin: Uint8Array
  /** Undefined: the function's own. */
  timeoutMs: number | undefined
  signal: AbortSignal
}

export type Invoked = {
  /** `no-node` and `node-lost` never reached a guest's end; everything else is the node's report. */
  outcome: Outcome | { kind: 'no-node'; message: string } | { kind: 'node-lost'; message: string }
  durationMs: number
  memPeakMb: number | null
  stdout: Uint8Array
  stderr: Uint8Array
  stdoutTruncated: boolean
  stderrTruncated: boolean
  node: { nodeId: string; trustTier: 'secure' | 'community' } | null
}

export type Invoker = {
  /** Rejects with AppError only for refusals before anything ran (NOT_FOUND, UNAVAILABLE of the store). */
  invoke(request: InvokeRequest): Promise<Invoked>
  /** Something may have freed room or brought a node up: waiting invocations look again. */
  wake(): void
}

// What runs work of one kind on this machine.
import type { FramedStream } from '#protocol/framed-stream.ts'
import type { StreamHeader } from '#protocol/messages.ts'
import type { Runtime } from '#core/node/node.ts'

export type Checked = { ok: boolean; output: string }

export type Driver = {
  readonly runtime: Runtime
  /** Serves one stream of the engine's to its end. Never rejects: a failure is told on the stream. */
  serve(header: StreamHeader, stream: FramedStream): Promise<void>
  /** The acceptance check of this runtime, run through the same parts as any work. */
  check(signal: AbortSignal): Promise<Checked>
  /** Ends everything, and resolves when no process of it is left. */
  close(): Promise<void>
}

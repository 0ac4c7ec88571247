// What the rest of the engine asks of the gateway, which holds the sessions of nodes in its own memory.
import type { Duplex } from 'node:stream'
import type { StreamHeader } from '#protocol/messages.ts'

export type SessionInfo = {
  nodeRecordId: string
  orgId: string
  epoch: number
  transport: 'quic' | 'tls'
}

export type Gateway = {
  /** The live session that this engine holds for the node, if any. */
  session(nodeRecordId: string): SessionInfo | undefined
  /**
   * Opens a data stream on the node's session and writes its header as the first framed message.
   * Rejects with AppError UNAVAILABLE (reason `NODE_LOST`) when the session is gone or ends meanwhile.
   */
  openStream(nodeRecordId: string, header: StreamHeader): Promise<Duplex>
  /** Ends the node's session; `retry: false` makes the agent stop with the message (revoked, key replaced). */
  endSession(nodeRecordId: string, why: { reason: string; message: string; retry: boolean }): void
  /** Calls back when a session begins or ends, or a node became schedulable. Returns the way to stop. */
  onChange(fn: (nodeRecordId: string) => void): () => void
  sessions(): number
}

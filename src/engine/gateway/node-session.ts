// One registered node on this engine: its control connection and its data pipes.
//
// Invariants
// 1. A session ends once, with one reason, whoever ends it; what the node says afterwards is dropped.
// 2. Nothing here touches the store: the gateway decides, and writes.
import type { Duplex } from 'node:stream'
import type { TrustTier } from '#core/node/node.ts'
import type { Cancel, Clock, Instant } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Framed } from '#protocol/framed.ts'
import { parseAs } from '#protocol/codec.ts'
import { FromNode, type FromEngine } from '#protocol/messages.ts'
import { DataPipes, type DataPipesDeps } from '#engine/gateway/data-pipes.ts'

export type SessionFacts = {
  nodeRecordId: string
  orgId: string
  nodeId: string
  epoch: number
  identityGeneration: number
  trustTier: TrustTier
}

/** Why a session ended; `silence` makes the node unreachable, everything else disconnected. */
export type SessionEnd = {
  reason: 'left' | 'closed' | 'silence' | 'replaced' | 'ended' | 'engine-stopping' | 'protocol'
  detail: string
}

export type NodeSessionDeps = {
  clock: Clock
  /** Healthy time now (healthy-time.ts). */
  healthyNow(): number
  tickets: DataPipesDeps['tickets']
  limits: DataPipesDeps['limits']
  onMessage(session: NodeSession, message: FromNode): void
  onEnd(session: NodeSession, end: SessionEnd): void
}

export class NodeSession {
  readonly facts: SessionFacts
  readonly #framed: Framed
  readonly #deps: NodeSessionDeps
  readonly #pipes: DataPipes
  readonly #deadlines = new Map<string, Cancel>()
  #end: SessionEnd | undefined
  /** Healthy time at which the node was last heard. */
  heardAt: number
  /** Wall time of the same, for `last_seen_at`. */
  seenAt: Instant
  /** Monotonic time at which its certificate is half through. */
  renewAt = Infinity
  left = false

  constructor(framed: Framed, facts: SessionFacts, deps: NodeSessionDeps) {
    this.#framed = framed
    this.facts = facts
    this.#deps = deps
    this.heardAt = deps.healthyNow()
    this.seenAt = deps.clock.now()
    this.#pipes = new DataPipes({
      clock: deps.clock,
      tickets: deps.tickets,
      limits: deps.limits,
      holder: { peer: framed.peer, epoch: facts.epoch },
      ask: (ticket) => this.send({ t: 'open', ticket }),
    })
  }

  /** Begins to listen: call it once the welcome has been sent. */
  start(): void {
    this.#framed.onClose((error) =>
      this.#over(
        this.left
          ? { reason: 'left', detail: 'the agent stopped' }
          : { reason: 'closed', detail: error?.message ?? 'the connection was closed' },
      ),
    )
    this.#framed.onMessage((raw) => {
      if (this.#end) return
      this.heardAt = this.#deps.healthyNow()
      this.seenAt = this.#deps.clock.now()
      this.#deps.onMessage(this, parseAs(FromNode, raw, 'message of a node'))
    })
  }

  get transport(): 'quic' | 'tls' {
    return this.#framed.pipe.transport
  }

  get remote(): string {
    return this.#framed.pipe.remote.host
  }

  get peer(): string {
    return this.#framed.peer
  }

  get ended(): boolean {
    return this.#end !== undefined
  }

  send(message: FromEngine): void {
    if (!this.#end) this.#framed.send(message)
  }

  openStream(): Promise<Duplex> {
    return this.#pipes.open()
  }

  get dataPipes(): number {
    return this.#pipes.size
  }

  /** Calls `late` unless `settled` is called for the same id within `ms`. */
  expect(id: string, ms: number, late: () => void): void {
    this.#deadlines.get(id)?.()
    this.#deadlines.set(
      id,
      this.#deps.clock.after(ms, () => {
        this.#deadlines.delete(id)
        late()
      }),
    )
  }

  settled(id: string): void {
    this.#deadlines.get(id)?.()
    this.#deadlines.delete(id)
  }

  sweep(): void {
    this.#pipes.sweep()
  }

  /** Ends the session; with a goodbye the node hears why. */
  close(end: SessionEnd, goodbye?: Omit<Extract<FromEngine, { t: 'goodbye' }>, 't'>): void {
    if (this.#end) return
    if (goodbye) {
      this.send({ t: 'goodbye', ...goodbye })
      this.#over(end)
      this.#framed.close()
    } else {
      this.#over(end)
      this.#framed.destroy()
    }
  }

  /** Resolves when the connection is gone: after `close`, when the goodbye has arrived or was given up. */
  gone(): Promise<void> {
    return new Promise((resolve) => this.#framed.onClose(() => resolve()))
  }

  #over(end: SessionEnd): void {
    if (this.#end) return
    this.#end = end
    for (const cancel of this.#deadlines.values()) cancel()
    this.#deadlines.clear()
    this.#pipes.close(
      new AppError('UNAVAILABLE', `the session of node ${this.facts.nodeId} ended: ${end.detail}`, {
        details: { reason: 'NODE_LOST' },
      }),
    )
    this.#deps.onEnd(this, end)
  }
}

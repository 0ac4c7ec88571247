// The data pipes of a node's session: dialled when the engine asks, by the transport that the session itself uses.
import type { Clock } from '#lib/clock.ts'
import { DIAL_TIMEOUT_MS } from '#core/node/limits.ts'
import { parseAs } from '#protocol/codec.ts'
import { dial } from '#protocol/dial.ts'
import { Framed } from '#protocol/framed.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import type { Identity } from '#protocol/identity.ts'
import { StreamHeader } from '#protocol/messages.ts'
import { Mux } from '#protocol/mux.ts'
import type { MuxStream } from '#protocol/mux-stream.ts'
import type { Pipe, Transport } from '#protocol/pipe.ts'
import type { RootPin } from '#protocol/statement.ts'
import { greet } from '#session/greet.ts'

/** A stream that was opened says what it is for at once. */
const HEADER_WITHIN_MS = 10_000

export type NodePipesDeps = {
  server: { host: string; port: number }
  identity: Identity
  clock: Clock
  pin(): RootPin
  certificatePem(): string | undefined
  transport: Transport
  epoch: number
  onStream(header: StreamHeader, stream: FramedStream): void
}

export class NodePipes {
  readonly #deps: NodePipesDeps
  readonly #over = new AbortController()
  readonly #muxes = new Map<Mux, { pipe: Pipe; closed: Promise<void> }>()

  constructor(deps: NodePipesDeps) {
    this.#deps = deps
  }

  /** Dials and joins. A failure is not told: the ticket expires, and the engine asks again when it needs to. */
  open(ticket: Uint8Array): void {
    this.#join(ticket).catch(() => undefined)
  }

  close(): void {
    this.#over.abort()
    for (const mux of this.#muxes.keys()) mux.close()
  }

  /** Ends the pipes after what their streams have said has arrived, or was given up (LINGER_MS). */
  async end(): Promise<void> {
    this.#over.abort()
    // The multiplexers hand over what was written in this turn of the loop at its end.
    await new Promise((resolve) => setImmediate(resolve))
    const ends = [...this.#muxes.values()].map(({ pipe, closed }) => {
      pipe.close()
      return closed
    })
    await Promise.all(ends)
  }

  async #join(ticket: Uint8Array): Promise<void> {
    const { server, identity, clock, transport, epoch } = this.#deps
    const certificatePem = this.#deps.certificatePem()
    const dialled = await dial({
      ...server,
      identity,
      clock,
      signal: this.#over.signal,
      timeoutMs: DIAL_TIMEOUT_MS,
      // Where UDP did not get through for the session, it would only cost the wait again.
      transports: transport === 'quic' ? ['quic', 'tls'] : ['tls'],
      ...(certificatePem === undefined ? {} : { certificatePem }),
    })
    if (dialled.outcome === 'failed') return
    const framed = new Framed(dialled.pipe)
    try {
      const { answer } = await greet(framed, { clock, pin: this.#deps.pin() }, (version) => ({
        t: 'join',
        version,
        ticket,
        epoch,
      }))
      if (answer.t !== 'joined' || this.#over.signal.aborted) return framed.destroy()
    } catch {
      return framed.destroy()
    }
    const pipe = framed.takeOver()
    const { promise: closed, resolve } = Promise.withResolvers<void>()
    const mux: Mux = new Mux(pipe, {
      clock,
      opens: false,
      onStream: (stream) => this.#began(stream),
      onClose: () => {
        this.#muxes.delete(mux)
        resolve()
      },
    })
    if (!mux.closed) this.#muxes.set(mux, { pipe, closed })
  }

  #began(stream: MuxStream): void {
    const framed = new FramedStream(stream)
    const stop = this.#deps.clock.after(HEADER_WITHIN_MS, () => stream.destroy())
    framed
      .read()
      .finally(stop)
      .then((raw) => this.#deps.onStream(parseAs(StreamHeader, raw, 'header of a stream'), framed))
      .catch(() => stream.destroy())
  }
}

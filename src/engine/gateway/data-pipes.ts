// The data pipes of one session: the node dials them when it is asked, and streams run over them.
//
// Invariants
// 1. A pipe joins by a ticket of this session; at most one is being asked for at a time.
// 2. A stream goes to the pipe with the fewest; another is asked for when that one is busy, and a pipe whose ids run
//    out takes no new stream and closes when its last one has ended.
// 3. A pipe without a stream for `idleMs` closes. When the session ends, all of them do.
import type { Duplex } from 'node:stream'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { Mux } from '#protocol/mux.ts'
import type { Pipe } from '#protocol/pipe.ts'
import type { Tickets, TicketHolder } from '#engine/gateway/tickets.ts'

/** Streams of one pipe before another is asked for: competing streams take turns, and a pipe is one congestion window. */
const STREAMS_BUSY = 128
/** Data pipes of one node. */
const PIPES_MAX = 4

export type DataPipesDeps = {
  clock: Clock
  tickets: Tickets
  holder: TicketHolder
  /** Sends `open` on the control connection. */
  ask(ticket: Uint8Array): void
  limits: { ticketMs: number; idleMs: number; idsMax?: number }
}

type DataPipe = { mux: Mux; idleSince: number }
type Waiter = { resolve(): void; reject(error: AppError): void }

export class DataPipes {
  readonly #deps: DataPipesDeps
  readonly #pipes = new Set<DataPipe>()
  #waiting: Waiter[] = []
  #cancelAsk: (() => void) | undefined
  #closed: AppError | undefined

  constructor(deps: DataPipesDeps) {
    this.#deps = deps
  }

  get size(): number {
    return this.#pipes.size
  }

  /** A stream to the node. Rejects with UNAVAILABLE: `NODE_LOST` when the session ends, `NODE_BUSY` when all is full. */
  async open(): Promise<Duplex> {
    for (;;) {
      if (this.#closed) throw this.#closed
      const best = this.#best()
      if (!best) {
        await this.#ask()
        continue
      }
      const busy = best.mux.size >= STREAMS_BUSY && this.#pipes.size < PIPES_MAX
      if (busy && !this.#cancelAsk) this.#ask().catch(() => undefined) // for the streams to come
      return this.#openOn(best)
    }
  }

  /** Call now and then: closes pipes that have been idle, and those whose ids have run out. */
  sweep(): void {
    const now = this.#deps.clock.monotonic()
    for (const pipe of this.#pipes) {
      if (pipe.mux.size > 0) pipe.idleSince = now
      else if (pipe.mux.exhausted || now - pipe.idleSince >= this.#deps.limits.idleMs)
        pipe.mux.close()
    }
  }

  close(error: AppError): void {
    if (this.#closed) return
    this.#closed = error
    this.#cancelAsk?.()
    for (const waiter of this.#waiting.splice(0)) waiter.reject(error)
    for (const pipe of this.#pipes) pipe.mux.close(error)
    this.#pipes.clear()
  }

  #best(): DataPipe | undefined {
    let best: DataPipe | undefined
    for (const pipe of this.#pipes) {
      if (pipe.mux.closed || pipe.mux.exhausted) continue
      if (!best || pipe.mux.size < best.mux.size) best = pipe
    }
    return best
  }

  #openOn(pipe: DataPipe): Duplex {
    try {
      const stream = pipe.mux.open()
      // A node that dies takes its streams with it, as an outcome of the caller's and never of the process.
      stream.on('close', () => {
        pipe.idleSince = this.#deps.clock.monotonic()
      })
      return stream
    } catch (cause) {
      throw new AppError('UNAVAILABLE', 'the node takes no more streams at the moment', {
        cause,
        details: { reason: 'NODE_BUSY' },
      })
    }
  }

  /** Resolves when a pipe has joined. */
  #ask(): Promise<void> {
    const joined = new Promise<void>((resolve, reject) => this.#waiting.push({ resolve, reject }))
    if (this.#cancelAsk) return joined
    const { tickets, holder, limits } = this.#deps
    const { ticket, cancel } = tickets.issue(holder, limits.ticketMs, {
      take: (pipe) => this.#join(pipe),
      expire: () => {
        this.#cancelAsk = undefined
        const error = new AppError(
          'UNAVAILABLE',
          `the node did not open a data connection within ${limits.ticketMs} ms`,
          { details: { reason: 'NODE_LOST' } },
        )
        for (const waiter of this.#waiting.splice(0)) waiter.reject(error)
      },
    })
    this.#cancelAsk = cancel
    this.#deps.ask(ticket)
    return joined
  }

  #join(pipe: Pipe): void {
    this.#cancelAsk = undefined
    if (this.#closed) return pipe.destroy(this.#closed)
    const { clock, limits } = this.#deps
    const held = { idleSince: clock.monotonic() } as DataPipe
    held.mux = new Mux(pipe, {
      clock,
      opens: true,
      onClose: () => this.#pipes.delete(held),
      ...(limits.idsMax === undefined ? {} : { idsMax: limits.idsMax }),
    })
    if (!held.mux.closed) this.#pipes.add(held)
    for (const waiter of this.#waiting.splice(0)) waiter.resolve()
  }
}

// One framed, credit-based multiplexer over a pipe. The acceptor of the connection (the engine) opens streams; the
// dialler answers.
//
// Invariants
// 1. The receiving side always reads the pipe and credits the pipe's window on arrival, read or not: a stream that
//    nobody reads holds up no other, and costs at most WINDOW bytes; all of them together at most UNREAD_MAX.
// 2. A sender never has more than WINDOW bytes of a stream out without credit (a peer that does is cut off), nor more
//    than the pipe's window of all (pace.ts). The last RESERVE of that is for the first line (turns.ts).
// 3. What waits for a peer that does not read is bounded: answers by ANSWERS_MAX, data by the streams' own buffers and
//    HELD_MAX over all; and after `stallMs` without any progress the pipe is cut.
// 4. Ids go 1, 2, 3 … and are never used twice: near their end the multiplexer says `exhausted`, and its owner opens
//    another pipe. A frame for a forgotten id is late and dropped; one for an id never opened is an error.
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { Batch } from '#protocol/batch.ts'
import {
  FRAME,
  FrameReader,
  HEADER_BYTES,
  PAYLOAD_MAX,
  RESET_REASONS,
  protocolError,
  type ResetReason,
} from '#protocol/frame.ts'
import { MuxStream, type MuxLink } from '#protocol/mux-stream.ts'
import { Pace } from '#protocol/pace.ts'
import type { Pipe } from '#protocol/pipe.ts'
import { TURN_BYTES, Turns, type StreamClass } from '#protocol/turns.ts'

const RESERVE = 128 * 1024
const PIPE_CREDIT_EACH = 128 * 1024
/** Bytes that arrived and nobody reads, over all streams of a pipe; beyond it the stream that overflows is reset. */
export const UNREAD_MAX = 64 << 20
/** What windows of streams may have grown by, over all: sixteen streams at full speed and some more. */
const GROWN_MAX = 16 << 20
/** Bytes that streams hold for a peer that takes nothing: above it no stream is opened and the pipe is given up. */
export const HELD_MAX = 32 << 20
/** Answers (pongs, credit) that a peer may cause while it does not drain the pipe; our own frames never count. */
const ANSWERS_MAX = 64 * 1024
/** Three missed heartbeats at the default 10 s would be later: a pipe that moves nothing is over before. */
export const STALL_MS = 20_000
const STREAMS_MAX = 1024
/** Streams beyond `streamsMax` that only the class `small` may open. */
const SMALL_STREAMS_RESERVE = 64
const IDS_MAX = 2 ** 32 - 1
/** Ids left when `exhausted` is said: minutes of the busiest pipe. */
const IDS_RESERVE = 2 ** 20
const PINGS_MAX = 64

export type MuxOptions = {
  clock: Clock
  /** True on the acceptor's side. */
  opens: boolean
  onStream?: (stream: MuxStream) => void
  onClose?: (error: AppError | undefined) => void
  /** Said once, while streams can still be opened: open another pipe and let this one run dry. */
  onExhausted?: () => void
  streamsMax?: number
  idsMax?: number
  stallMs?: number
}

export class Mux {
  readonly #pipe: Pipe
  readonly #options: MuxOptions
  readonly #batch: Batch
  readonly #turns = new Turns<MuxStream>()
  readonly #streams = new Map<number, MuxStream>()
  readonly #pings = new Map<number, (failure?: AppError) => void>()
  readonly #link: MuxLink
  readonly #idsMax: number
  #lastId = 0
  #pingId = 0
  #answers = 0
  #full = false
  readonly #pace: Pace
  #onTheWay = 0
  #arrived = 0
  #unread = 0
  #grown = 0
  #scheduled = false
  #closed = false
  #failure: AppError | undefined
  #progress = 0 // counts drains and pipe credits
  #stopWatch: Cancel | undefined

  constructor(pipe: Pipe, options: MuxOptions) {
    this.#pipe = pipe
    this.#options = options
    this.#idsMax = options.idsMax ?? IDS_MAX
    this.#batch = new Batch(pipe.copies, (bytes) => {
      if (!this.#closed && !pipe.write(bytes)) this.#full = true
    })
    this.#pace = new Pace(options.clock)
    this.#link = this.#makeLink()
    const reader = new FrameReader({
      header: (type, value, id) => this.#header(type, value, id),
      payload: (id, piece) => this.#streams.get(id)?.deliver(piece),
    })
    pipe.onClose((error) => this.#down(error))
    pipe.onDrain(() => {
      this.#full = false
      this.#answers = 0
      this.#progress++
      this.#flush()
    })
    pipe.receive((chunk) => {
      try {
        if (!this.#closed) reader.push(chunk)
      } catch (error) {
        if (!(error instanceof AppError)) throw error
        this.close(error)
      }
    })
  }

  /** Streams that are open. */
  get size(): number {
    return this.#streams.size
  }

  get closed(): boolean {
    return this.#closed
  }

  /** True once the ids run out: streams can still be opened for a while. */
  get exhausted(): boolean {
    return this.#lastId > this.#idsMax - Math.min(IDS_RESERVE, Math.ceil(this.#idsMax / 8))
  }

  /**
   * A stream to the peer. Throws UNAVAILABLE with the reason MUX_CLOSED, MUX_EXHAUSTED, MUX_STREAMS_MAX or
   * PEER_STALLED: on each of them the caller may use another pipe.
   */
  open(streamClass: StreamClass = 'bulk'): MuxStream {
    if (!this.#options.opens) throw new Error('only the acceptor of a connection opens streams')
    if (this.#closed) throw this.#closedError()
    if (this.#lastId >= this.#idsMax)
      throw unavailable(
        'MUX_EXHAUSTED',
        `all ${this.#idsMax} stream ids of the connection are used`,
      )
    const most = this.#streamsMax(streamClass)
    if (this.#streams.size >= most)
      throw unavailable(
        'MUX_STREAMS_MAX',
        `${this.#streams.size} streams are open: the most is ${most}`,
      )
    if (this.#stopWatch && this.held > HELD_MAX)
      throw unavailable(
        'PEER_STALLED',
        `the peer takes nothing, and ${this.held} bytes wait for it`,
      )
    const before = this.exhausted
    const stream = this.#add(this.#lastId + 1, streamClass)
    this.#send(FRAME.open, streamClass === 'small' ? 1 : 0, stream.id)
    if (!before && this.exhausted) this.#options.onExhausted?.()
    return stream
  }

  /** Bytes that streams hold because the peer has not taken them. */
  get held(): number {
    let sum = 0
    for (const stream of this.#streams.values()) sum += stream.writableLength
    return sum
  }

  /** Bytes that arrived and that nobody reads. */
  get unread(): number {
    return this.#unread
  }

  /** Resolves with the round trip in milliseconds; rejects when the pipe closes, or with too many on the way. */
  ping(): Promise<number> {
    const id = (this.#pingId = (this.#pingId + 1) >>> 0)
    const began = this.#options.clock.monotonic()
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(this.#closedError())
      if (this.#pings.size >= PINGS_MAX)
        return reject(unavailable('PEER_STALLED', `${PINGS_MAX} pings are unanswered`))
      this.#pings.set(id, (failure) =>
        failure ? reject(failure) : resolve(this.#options.clock.monotonic() - began),
      )
      this.#send(FRAME.ping, 0, id)
    })
  }

  /** Ends the pipe and every stream at once; `error` is what they are told. */
  close(error?: AppError): void {
    this.#pipe.destroy(error)
    this.#down(error)
  }

  #streamsMax(streamClass: StreamClass): number {
    const most = this.#options.streamsMax ?? STREAMS_MAX
    return streamClass === 'small' ? most + SMALL_STREAMS_RESERVE : most
  }

  #makeLink(): MuxLink {
    return {
      wants: (stream) => {
        this.#turns.add(stream)
        this.#schedule()
      },
      credit: (id, bytes) => this.#send(FRAME.credit, bytes, id),
      fin: (id) => this.#send(FRAME.fin, 0, id),
      forget: (id, reset) => {
        if (this.#streams.delete(id) && reset !== undefined) this.#reset(id, reset)
      },
      hold: (bytes) => {
        if (bytes > 0 && this.#unread + bytes > UNREAD_MAX) return false
        this.#unread += bytes
        return true
      },
      grow: (bytes) => {
        if (bytes > 0 && this.#grown + bytes > GROWN_MAX) return false
        this.#grown += bytes
        return true
      },
    }
  }

  #add(id: number, streamClass: StreamClass): MuxStream {
    this.#lastId = id
    const stream = new MuxStream(this.#link, { id, class: streamClass })
    this.#streams.set(id, stream)
    return stream
  }

  #header(type: number, value: number, id: number): void {
    if (type === FRAME.ping) return this.#send(FRAME.pong, 0, id)
    if (type === FRAME.pong) {
      this.#pings.get(id)?.()
      return void this.#pings.delete(id)
    }
    if (type === FRAME.open) return this.#opened(value, id)
    if (id === 0 && type === FRAME.credit) return this.#acknowledged(value)
    if (id > this.#lastId || id === 0)
      throw protocolError(`frame ${type} for stream ${id}: the last one opened is ${this.#lastId}`)
    if (type === FRAME.data) this.#arrival(value)
    const stream = this.#streams.get(id)
    if (!stream) return
    if (type === FRAME.data) stream.charge(value)
    else if (type === FRAME.credit) stream.credited(value)
    else if (type === FRAME.fin) stream.ended()
    else stream.cut(resetError(value))
  }

  /** Invariant 1: credited on arrival, in steps small enough for a slow link to show progress. */
  #arrival(bytes: number): void {
    this.#arrived += bytes
    if (this.#arrived < PIPE_CREDIT_EACH) return
    this.#send(FRAME.credit, this.#arrived, 0)
    this.#arrived = 0
  }

  #acknowledged(bytes: number): void {
    this.#onTheWay -= bytes
    if (this.#onTheWay < 0) throw protocolError('the pipe was credited more than it carried')
    this.#progress++
    this.#pace.delivered(bytes)
    if (!this.#turns.empty) this.#schedule()
  }

  #opened(value: number, id: number): void {
    if (this.#options.opens) throw protocolError('the dialler of a connection opens no streams')
    if (id !== this.#lastId + 1)
      throw protocolError(`stream ${id} opened: the next one is ${this.#lastId + 1}`)
    const streamClass = value === 1 ? 'small' : 'bulk'
    if (this.#streams.size >= this.#streamsMax(streamClass)) {
      this.#lastId = id
      return this.#reset(id, 'too many streams')
    }
    const stream = this.#add(id, streamClass)
    if (this.#options.onStream) this.#options.onStream(stream)
    else stream.destroy()
  }

  #reset(id: number, reason: ResetReason): void {
    this.#send(FRAME.reset, RESET_REASONS.indexOf(reason), id)
  }

  #send(type: number, value: number, id: number): void {
    if (this.#closed) return
    const answer = type === FRAME.pong || type === FRAME.credit || type === FRAME.reset
    if (this.#full && answer && (this.#answers += HEADER_BYTES) > ANSWERS_MAX)
      return this.close(stalled('it asks and does not read the answers'))
    this.#batch.header(type, value, id)
    this.#schedule()
  }

  /** A batch closes when the loop's turn ends: everything written in one turn leaves in one write. */
  #schedule(): void {
    if (this.#scheduled || this.#closed) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#flush()
    })
  }

  #flush(): void {
    const emit = (payload: Buffer): void => this.#batch.data(stream?.id ?? 0, payload)
    let stream: MuxStream | undefined
    const { window } = this.#pace
    while (!this.#full && !this.#closed && this.#onTheWay < window) {
      const alone = this.#turns.alone
      stream = this.#turns.next(this.#onTheWay < window - RESERVE)
      if (!stream) break
      const sent = stream.transmit(alone ? PAYLOAD_MAX : TURN_BYTES, emit)
      this.#onTheWay += sent
      this.#turns.took(stream, sent)
      stream.proceed()
    }
    this.#batch.handOver()
    this.#watch()
  }

  /** Invariant 3: while something waits for the peer, it must show progress. */
  #watch(): void {
    const waits = (): boolean => !this.#closed && (this.#full || !this.#turns.empty)
    if (this.#stopWatch || !waits()) return
    const stallMs = this.#options.stallMs ?? STALL_MS
    const seen = this.#progress
    this.#stopWatch = this.#options.clock.after(stallMs, () => {
      this.#stopWatch = undefined
      if (waits() && this.#progress === seen)
        this.close(stalled(`it has taken nothing for ${stallMs} ms; ${this.held} bytes wait`))
      else this.#watch()
    })
  }

  #closedError(): AppError {
    return this.#failure ?? unavailable('MUX_CLOSED', 'the connection is closed')
  }

  #down(error: AppError | undefined): void {
    if (this.#closed) return
    this.#closed = true
    this.#failure = error
    this.#stopWatch?.()
    this.#turns.clear()
    for (const stream of this.#streams.values()) stream.cut(this.#closedError())
    this.#streams.clear()
    for (const settle of this.#pings.values()) settle(this.#closedError())
    this.#pings.clear()
    this.#options.onClose?.(error)
  }
}

const unavailable = (reason: string, message: string): AppError =>
  new AppError('UNAVAILABLE', message, { details: { reason } })

const stalled = (why: string): AppError =>
  unavailable('PEER_STALLED', `the peer is cut off: ${why}`)

function resetError(value: number): AppError {
  const why = RESET_REASONS[value] ?? RESET_REASONS[0]
  return unavailable('STREAM_RESET', `the peer reset the stream: ${why}`)
}

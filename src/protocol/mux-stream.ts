// One stream of a multiplexer, as a Node Duplex: half-close, reset (`destroy`), back-pressure both ways.
//
// Invariants
// 1. The receiver counts: more bytes than it granted, or anything after FIN, cuts the pipe.
// 2. What arrived and was not read waits in `#inbox`, at most a window of bytes, and is counted in the multiplexer's
//    total. A window begins at WINDOW and grows to WINDOW_MAX only while the reader keeps up and the multiplexer's
//    budget for growth lasts.
// 3. Credit goes back when bytes leave the inbox for the Readable, which holds READ_AHEAD of them.
import { Duplex } from 'node:stream'
import { AppError } from '#lib/error.ts'
import { PAYLOAD_MAX, protocolError, type ResetReason } from '#protocol/frame.ts'
import { PIPE_WINDOW_MAX } from '#protocol/pace.ts'
import { Share, type StreamClass } from '#protocol/turns.ts'

/** Bytes of one stream on the way without credit: what a stream that nobody reads costs. */
export const WINDOW = 256 * 1024
/** What the window of a stream that is read as fast as it comes grows to: all that a pipe has on the way. */
export const WINDOW_MAX = PIPE_WINDOW_MAX
const READ_AHEAD = 16 * 1024
const WRITE_AHEAD = 64 * 1024
/** Received pieces kept apart; more are joined, so that one-byte frames cost bytes, not objects. */
const PIECES_MAX = 64

/** What a stream may ask of its multiplexer. */
export type MuxLink = {
  wants(stream: MuxStream): void
  credit(id: number, bytes: number): void
  fin(id: number): void
  /** The stream is over; with a reason the peer is told. */
  forget(id: number, reset: ResetReason | undefined): void
  /** Adds to (or takes from) the bytes that all streams hold unread; false when there is no room for them. */
  hold(bytes: number): boolean
  /** Adds to (or takes from) what windows grew by; false when the budget is used up. */
  grow(bytes: number): boolean
}

export type MuxStreamOptions = { id: number; class: StreamClass }

export class MuxStream extends Duplex {
  readonly id: number
  readonly class: StreamClass
  readonly share = new Share()
  readonly #mux: MuxLink
  #sendCredit = WINDOW
  #out: Buffer | undefined
  #done: ((error?: Error | null) => void) | undefined
  #waiting = false // for credit
  #window = WINDOW
  #receiveCredit = WINDOW
  #consumed = 0
  #inbox: Buffer[] = []
  #unread = 0
  #hungry = false
  #finIn = false
  #finOut = false
  #reset: ResetReason | undefined = 'cancelled' // what the peer is told on destroy; undefined: it knows

  constructor(mux: MuxLink, options: MuxStreamOptions) {
    super({
      readableHighWaterMark: READ_AHEAD,
      writableHighWaterMark: WRITE_AHEAD,
      allowHalfOpen: true,
    })
    this.#mux = mux
    this.id = options.id
    this.class = options.class
    this.on('error', () => {}) // a reset that nobody listens to must not end the process
  }

  /** Bytes that the next turn could send. */
  get pending(): number {
    return this.#out?.length ?? 0
  }

  // The multiplexer's side.

  /** A DATA header came. */
  charge(bytes: number): void {
    this.#receiveCredit -= bytes
    if (this.#receiveCredit < 0)
      throw protocolError(`stream ${this.id}: ${-this.#receiveCredit} bytes beyond its credit`)
    if (this.#finIn) throw protocolError(`stream ${this.id}: data after its end`)
  }

  deliver(piece: Buffer): void {
    if (this.destroyed) return
    if (this.#hungry && this.#inbox.length === 0) return this.#pass(piece)
    if (!this.#mux.hold(piece.length)) return this.#shed()
    this.#unread += piece.length
    // A kept slice would pin the whole chunk that it is a slice of.
    this.#inbox.push(piece.length * 4 < piece.buffer.byteLength ? Buffer.from(piece) : piece)
    if (this.#inbox.length > PIECES_MAX) this.#inbox = [Buffer.concat(this.#inbox)]
  }

  credited(bytes: number): void {
    this.#sendCredit += bytes
    if (this.#sendCredit > WINDOW_MAX)
      throw protocolError(
        `stream ${this.id}: credit for ${this.#sendCredit} bytes: ${WINDOW_MAX} are the most`,
      )
    if (!this.#waiting) return
    this.#waiting = false
    this.#mux.wants(this)
  }

  ended(): void {
    if (this.#finIn) throw protocolError(`stream ${this.id}: ended twice`)
    this.#finIn = true
    if (this.#finOut) this.#mux.forget(this.id, undefined)
    if (this.#inbox.length === 0 && !this.destroyed) this.push(null)
  }

  /** The far side, or the end of the pipe, ends the stream: nothing is to be told. */
  cut(error: Error): void {
    this.#reset = undefined
    this.destroy(error)
  }

  /** Sends at most `most` bytes as one frame; the number sent. */
  transmit(most: number, emit: (payload: Buffer) => void): number {
    const out = this.#out
    if (!out || this.destroyed) return 0
    const size = Math.min(out.length, this.#sendCredit, most, PAYLOAD_MAX)
    if (size === 0) {
      this.#waiting = true
      return 0
    }
    this.#sendCredit -= size
    emit(size === out.length ? out : out.subarray(0, size))
    this.#out = size < out.length ? out.subarray(size) : undefined
    return size
  }

  /** After a turn: back into the line with what is left, or on to the next write. */
  proceed(): void {
    if (this.#out) return this.#waiting || this.destroyed ? undefined : this.#mux.wants(this)
    const done = this.#done
    this.#done = undefined
    done?.()
  }

  // Duplex's side.

  override _read(): void {
    this.#hungry = true
    while (this.#hungry) {
      const piece = this.#inbox.shift()
      if (!piece) break
      this.#unread -= piece.length
      this.#mux.hold(-piece.length)
      this.#pass(piece)
    }
    if (this.#finIn && this.#inbox.length === 0) this.push(null)
  }

  override _write(chunk: Buffer, _: string, done: (error?: Error | null) => void): void {
    if (chunk.length === 0) return done()
    this.#out = chunk
    this.#done = done
    this.#mux.wants(this)
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    const [only] = chunks
    const joined =
      chunks.length === 1 && only ? only.chunk : Buffer.concat(chunks.map(({ chunk }) => chunk))
    this._write(joined, '', done)
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#finOut = true
    this.#mux.fin(this.id)
    if (this.#finIn) this.#mux.forget(this.id, undefined)
    done()
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#inbox = []
    this.#mux.hold(-this.#unread)
    this.#unread = 0
    this.#mux.grow(WINDOW - this.#window)
    this.#window = WINDOW
    this.#mux.forget(this.id, this.#finIn && this.#finOut ? undefined : this.#reset)
    this.#out = undefined
    const pending = this.#done
    this.#done = undefined
    pending?.(error ?? closedEarly())
    done(error)
  }

  #pass(piece: Buffer): void {
    this.#consumed += piece.length
    if (this.#consumed >= this.#window / 2 && !this.#finIn) this.#grant()
    this.#hungry = this.push(piece)
  }

  #grant(): void {
    let bytes = this.#consumed
    this.#consumed = 0
    if (this.#inbox.length === 0 && this.#window < WINDOW_MAX && this.#mux.grow(WINDOW)) {
      this.#window += WINDOW
      bytes += WINDOW
    }
    this.#receiveCredit += bytes
    this.#mux.credit(this.id, bytes)
  }

  #shed(): void {
    this.#reset = 'out of memory'
    const details = { reason: 'STREAM_SHED', next: 'read the streams that are open, or open fewer' }
    this.destroy(
      new AppError('UNAVAILABLE', 'too many bytes wait unread on this connection', { details }),
    )
  }
}

const closedEarly = (): AppError =>
  new AppError('UNAVAILABLE', 'the stream was closed', { details: { reason: 'STREAM_CLOSED' } })

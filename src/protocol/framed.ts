// Messages on a pipe: `u32 length | CBOR`. The control connection lives on this; a data connection begins with it and
// then hands the rest of its bytes to a multiplexer.
//
// Invariants
// 1. An unfinished message costs the bytes that have arrived, never the length it announced, and at most the limit.
// 2. Messages are delivered one at a time and in order; nothing is read past the message after which the reader stops
//    or takes the pipe over.
// 3. What waits for a peer that does not read is bounded: beyond UNREAD_MAX the pipe is cut.
import { AppError } from '#lib/error.ts'
import { decode, encode } from '#protocol/codec.ts'
import { withLeftover, type Pipe } from '#protocol/pipe.ts'

/** An inventory of a big node is some 100 KiB; ten times that is somebody's mistake. */
export const MESSAGE_MAX = 1 << 20
/** Control messages queued for a peer that takes none: some minutes of a busy session. */
export const UNREAD_MAX = 4 << 20
export const LENGTH_BYTES = 4

export class Framed {
  readonly pipe: Pipe
  readonly #reader = new MessageReader()
  #limit: number
  #unread = 0
  #full = false
  #taken = false
  #closed = false
  #failure: AppError | undefined
  #onMessage: ((message: unknown) => void) | undefined
  readonly #closers: ((error: AppError | undefined) => void)[] = []

  /** `limit`: bytes of one message that comes, until `allow` says otherwise. */
  constructor(pipe: Pipe, limit = MESSAGE_MAX) {
    this.pipe = pipe
    this.#limit = limit
    pipe.onDrain(() => {
      this.#full = false
      this.#unread = 0
    })
    pipe.onClose((error) => {
      this.#closed = true
      this.#failure = error
      for (const fn of this.#closers.splice(0)) fn(error)
    })
  }

  get peer(): string {
    return this.pipe.peer
  }

  /** Another limit for what comes: low before a peer is known, MESSAGE_MAX after. */
  allow(limit: number): void {
    this.#limit = limit
  }

  /** Throws TOO_LARGE for a message that no peer takes. False: the peer is slow, hold back what can wait. */
  send(message: unknown): boolean {
    const bytes = frame(message, MESSAGE_MAX)
    const ready = this.pipe.write(bytes)
    if (!ready) this.#full = true
    if (this.#full && (this.#unread += bytes.length) > UNREAD_MAX)
      this.destroy(
        new AppError(
          'UNAVAILABLE',
          `the peer does not read: ${this.#unread} bytes of messages wait`,
          { details: { reason: 'PEER_STALLED' } },
        ),
      )
    return ready
  }

  /** Every message from now on, decoded and not yet checked. A throw of `fn` that is an AppError cuts the pipe. */
  onMessage(fn: (message: unknown) => void): void {
    this.#onMessage = fn
    this.pipe.receive((chunk) => this.#push(chunk))
    if (this.#reader.held > 0) queueMicrotask(() => this.#deliver())
  }

  /** The one next message, reading nothing after it; `undefined` when the pipe closed first. */
  next(): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const once = (message: unknown): void => {
        this.#pause()
        settle(() => resolve(message))
      }
      let open = true
      const settle = (fn: () => void): void => {
        if (open) fn()
        open = false
      }
      this.onClose((error) => settle(() => (error ? reject(error) : resolve(undefined))))
      this.onMessage(once)
    })
  }

  /** Called once, at once when already closed; with an error unless this side closed it without one. */
  onClose(fn: (error: AppError | undefined) => void): void {
    if (this.#closed) fn(this.#failure)
    else this.#closers.push(fn)
  }

  /** Ends after everything sent has arrived. */
  close(): void {
    this.#onMessage = undefined
    this.pipe.close()
  }

  destroy(error?: AppError): void {
    this.#onMessage = undefined
    this.pipe.destroy(error)
  }

  /** Ends the messages; the pipe that is returned goes on with the first byte after the last one delivered. */
  takeOver(): Pipe {
    this.#taken = true
    this.#pause()
    return withLeftover(this.pipe, this.#reader.rest())
  }

  #pause(): void {
    this.#onMessage = undefined
    this.pipe.receive(undefined)
  }

  #push(chunk: Buffer): void {
    this.#reader.push(chunk)
    this.#deliver()
  }

  #deliver(): void {
    try {
      while (this.#onMessage && !this.#taken && !this.#closed) {
        const body = this.#reader.next(this.#limit)
        if (!body) return
        this.#onMessage(decode(body))
      }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      this.destroy(error)
    }
  }
}

/** Cuts a byte stream into message bodies. */
export class MessageReader {
  #bytes: Buffer = Buffer.alloc(0) // what has arrived and not been given out
  #room: Buffer = Buffer.alloc(0) // the memory of ours in which `#bytes` lies, if it does

  get held(): number {
    return this.#bytes.length
  }

  push(chunk: Buffer): void {
    const have = this.#bytes.length
    if (have === 0) {
      this.#bytes = chunk
      this.#room = Buffer.alloc(0)
      return
    }
    const total = have + chunk.length
    const start = this.#bytes.byteOffset - this.#room.byteOffset
    const inPlace = this.#bytes.buffer === this.#room.buffer && start + total <= this.#room.length
    if (!inPlace) {
      const room = Buffer.allocUnsafeSlow(Math.max(2 * total, ROOM_MIN)) // doubling: bytes are copied twice at most
      this.#bytes.copy(room)
      this.#room = room
    }
    const from = inPlace ? start : 0
    chunk.copy(this.#room, from + have)
    this.#bytes = this.#room.subarray(from, from + total)
  }

  /** The next whole body, to be used before the next `push`; throws MESSAGE_TOO_LARGE at the head of a longer one. */
  next(limit: number): Buffer | undefined {
    if (this.#bytes.length < LENGTH_BYTES) return undefined
    const size = this.#bytes.readUInt32BE(0)
    if (size > limit) throw tooLarge(size, limit)
    if (this.#bytes.length < LENGTH_BYTES + size) return undefined
    const body = this.#bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + size)
    this.#bytes = this.#bytes.subarray(LENGTH_BYTES + size)
    return body
  }

  /** Everything not given out, once. */
  rest(): Buffer {
    const rest = Buffer.from(this.#bytes)
    this.#bytes = this.#room = Buffer.alloc(0)
    return rest
  }
}

const ROOM_MIN = 256

/** `u32 length | CBOR`; throws TOO_LARGE above `limit`. */
export function frame(message: unknown, limit: number): Buffer {
  const bytes = encode(message, LENGTH_BYTES)
  const size = bytes.length - LENGTH_BYTES
  if (size > limit) throw tooLarge(size, limit)
  bytes.writeUInt32BE(size)
  return bytes
}

export const tooLarge = (size: number, limit: number): AppError =>
  new AppError('TOO_LARGE', `a message of ${size} bytes: ${limit} are allowed`, {
    details: { reason: 'MESSAGE_TOO_LARGE' },
  })

// Messages on a Duplex (a stream of the multiplexer): `u32 length | CBOR`, with back-pressure both ways. What follows
// the last message that was read stays in the stream, so a header can precede raw bytes.
import type { Duplex } from 'node:stream'
import { AppError } from '#lib/error.ts'
import { decode } from '#protocol/codec.ts'
import { LENGTH_BYTES, frame, tooLarge } from '#protocol/framed.ts'

/** One message on a stream: a chunk of an artifact or of output is 64 KiB, a header with its arguments less than this. */
export const STREAM_MESSAGE_MAX = 256 * 1024

export class FramedStream {
  readonly stream: Duplex
  readonly #limit: number
  #size: number | undefined // of the message whose head was read

  constructor(stream: Duplex, limit = STREAM_MESSAGE_MAX) {
    this.stream = stream
    this.#limit = limit
  }

  /**
   * The next message; `undefined` at the end of the stream. One read at a time.
   * Rejects with MESSAGE_TOO_LARGE, MESSAGE_MALFORMED or MESSAGE_CUT_SHORT (the stream is destroyed), or with the
   * stream's own error.
   */
  async read(): Promise<unknown> {
    try {
      this.#size ??= (await this.#take(LENGTH_BYTES))?.readUInt32BE(0)
      const size = this.#size
      if (size === undefined) return undefined
      if (size > this.#limit) throw tooLarge(size, this.#limit)
      if (size === 0) throw cutShort('a message of 0 bytes')
      const body = await this.#take(size)
      if (!body) throw cutShort(`the stream ended inside a message of ${size} bytes`)
      this.#size = undefined
      return decode(body)
    } catch (error) {
      this.stream.destroy(error instanceof Error ? error : undefined)
      throw error
    }
  }

  /** Resolves when the stream can take more; rejects when it ends first, and with TOO_LARGE above the limit. */
  async write(message: unknown): Promise<void> {
    if (this.stream.write(frame(message, this.#limit))) return
    await settled(this.stream, 'drain')
  }

  /** Writes without waiting; false when the stream has no room for more: `drained` tells when it has. */
  send(message: unknown): boolean {
    return this.stream.write(frame(message, this.#limit))
  }

  /** Resolves when the stream can take more; rejects when it ends first. */
  async drained(): Promise<void> {
    if (this.stream.writableNeedDrain) await settled(this.stream, 'drain')
  }

  /** No more messages from this side. */
  end(): void {
    this.stream.end()
  }

  destroy(error?: Error): void {
    this.stream.destroy(error)
  }

  /**
   * Exactly `size` bytes, or `undefined` when the stream ends before the first of them. Takes whatever has arrived and
   * puts back what is too much: `read(size)` while less is there makes Node say 'readable' again at once, for ever.
   */
  async #take(size: number): Promise<Buffer | undefined> {
    const pieces: Buffer[] = []
    let held = 0
    while (held < size) {
      const piece = this.stream.read() as Buffer | null
      if (piece !== null) {
        pieces.push(piece)
        held += piece.length
      } else if (this.stream.readableEnded || (await settled(this.stream, 'readable')) === 'end') {
        if (held === 0) return undefined
        throw cutShort(`the stream ended ${size - held} bytes early`)
      }
    }
    const all = pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces)
    if (held > size) this.stream.unshift(all.subarray(size))
    return all.subarray(0, size)
  }
}

/** Waits for `event`, or for the end of the stream, whichever comes first. */
function settled(stream: Duplex, event: 'readable' | 'drain'): Promise<'event' | 'end'> {
  return new Promise((resolve, reject) => {
    const off = (): void => {
      stream.off(event, onEvent).off('end', onEnd).off('error', onError).off('close', onClose)
    }
    const onEvent = (): void => (off(), resolve('event'))
    const onEnd = (): void => {
      if (event === 'drain') return
      off()
      resolve('end')
    }
    const onError = (error: Error): void => (off(), reject(error))
    const onClose = (): void => {
      off()
      if (event === 'readable' && stream.readableEnded) resolve('end')
      else reject(stream.errored ?? closedEarly())
    }
    if (stream.destroyed) return onClose()
    stream.on(event, onEvent).on('end', onEnd).on('error', onError).on('close', onClose)
  })
}

const cutShort = (why: string): AppError =>
  new AppError('INVALID', `malformed message: ${why}`, { details: { reason: 'MESSAGE_CUT_SHORT' } })

const closedEarly = (): AppError =>
  new AppError('UNAVAILABLE', 'the stream was closed', { details: { reason: 'STREAM_CLOSED' } })

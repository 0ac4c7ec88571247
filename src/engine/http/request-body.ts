// The body of a request as it comes, piece by piece.
// 1. Nothing is read ahead of who asks: at most one piece waits here, the rest in the connection, which holds the client
//    back.
// 2. A body that nobody wants any more is read and dropped, so that the answer is not lost in a reset connection; by
//    whom that takes too long the connection is ended.
import type { IncomingMessage } from 'node:http'
import type { Clock } from '#lib/clock.ts'

export class RequestBody implements AsyncIterable<Uint8Array>, AsyncIterator<Uint8Array> {
  readonly #req: IncomingMessage
  readonly #pieces: Uint8Array[] = []
  #dropped = false
  #failure: Error | undefined
  #wake: () => void = () => undefined
  /** Bytes that have come. */
  bytes = 0

  constructor(req: IncomingMessage) {
    this.#req = req
    req.on('data', (piece: Uint8Array) => this.#take(piece))
    req.pause()
    req.once('end', () => this.#wake())
    const onClose = (): void => {
      if (!req.readableEnded) this.fail(new Error('the client went away'))
    }
    if (req.closed) onClose()
    else req.once('close', onClose)
  }

  /** Whether all of it has come. */
  get ended(): boolean {
    return this.#req.readableEnded
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return this
  }

  /** Rejects when the client went away, or with what `fail` was given. */
  async next(): Promise<IteratorResult<Uint8Array>> {
    for (;;) {
      if (this.#failure) throw this.#failure
      const piece = this.#pieces.shift()
      if (piece) return { done: false, value: piece }
      if (this.#dropped || this.ended) return { done: true, value: undefined }
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      this.#req.resume()
      await promise
    }
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    this.#discard()
    return { done: true, value: undefined }
  }

  /** Whoever reads hears `error` instead of the next piece. */
  fail(error: Error): void {
    this.#failure ??= error
    this.#discard()
  }

  /** What is still to come is not wanted; after `withinMs` the connection of a client that still sends is ended. */
  drop(withinMs: number, clock: Clock): void {
    this.#discard()
    dropRest(this.#req, withinMs, clock)
  }

  #take(piece: Uint8Array): void {
    this.bytes += piece.length
    if (this.#dropped) return
    this.#pieces.push(piece)
    this.#req.pause()
    this.#wake()
  }

  #discard(): void {
    this.#dropped = true
    this.#pieces.length = 0
    this.#req.resume()
    this.#wake()
  }
}

/** Reads on and drops it; after `withinMs` the connection of a client that still sends is ended. */
export function dropRest(req: IncomingMessage, withinMs: number, clock: Clock): void {
  if (req.complete) return
  req.resume()
  const cancel = clock.after(withinMs, () => req.socket.destroy())
  req.once('close', cancel)
}

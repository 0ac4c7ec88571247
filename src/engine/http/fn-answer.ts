// The answer of `POST /fn/…` as it forms (FN-9): stdout streams to the client, and how it ended is told where it still
// can be.
// 1. Nothing is sent before the end or the first FN_HEAD_MAX bytes of stdout, whichever comes first: an early end decides
//    the status.
// 2. A write is taken when the client took what came before: a slow reader holds the guest back, not this memory. One
//    that takes nothing for TAKE_MS loses its connection, and with it the invocation.
// 3. After the status is out, only a success completes the body. A failure breaks it off: no client takes a part for
//    the whole.
// 4. Everything in a header is ours, or is cut down to plain letters: what a guest says never forms a header.
import type { ServerResponse } from 'node:http'
import { answerOf, type Answer, type Reason } from '#core/function/answer.ts'
import { FN_HEAD_MAX } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import type { Invoked } from '#engine/functions/invoker.ts'

/** What a first piece of stdout usually needs. */
const HEAD_FIRST = 4 * 1024
/** How long a client may take to read the rest of an answer: what a connection buffers, on any line. */
const LAST_READ_MS = 60_000
/** How long a client may leave a piece of stdout untaken: 64 KiB and what the kernel holds, on a line of 1 Mbit/s. */
export const TAKE_MS = 30_000
/** D43 has waited for room already: whoever comes back at once finds none. */
const NO_NODE_RETRY_S = 10
const ERROR_LENGTH_MAX = 200

const EXIT_CODE = 'x-clutch-exit-code'
const DURATION = 'x-clutch-duration-ms'

export class FnAnswer {
  readonly #res: ServerResponse
  readonly #clock: Clock
  readonly #stranger: boolean
  #head: Buffer<ArrayBufferLike> = Buffer.alloc(0)
  #size = 0

  /** `stranger`: no member of the function's org; the nodes are not their business. */
  constructor(res: ServerResponse, { clock, stranger }: { clock: Clock; stranger: boolean }) {
    this.#res = res
    this.#clock = clock
    this.#stranger = stranger
  }

  /** The next bytes of stdout. Resolves when there may be more, at once when the client is gone. */
  write(bytes: Uint8Array): void | Promise<void> {
    if (this.#res.headersSent) return this.#send(bytes)
    const fits = bytes.subarray(0, FN_HEAD_MAX - this.#size)
    this.#hold(fits)
    if (this.#size < FN_HEAD_MAX) return undefined
    this.#begin()
    const rest = bytes.subarray(fits.length)
    return rest.length === 0 ? this.#send(this.#taken()) : this.#sendBoth(this.#taken(), rest)
  }

  end(invoked: Invoked): void {
    const res = this.#res
    if (res.destroyed) return
    const answer = answerOf(invoked.outcome)
    const told = { ...exitCodeOf(answer), [DURATION]: String(Math.round(invoked.durationMs)) }
    if (!res.headersSent) {
      const body = this.#taken()
      const headers = {
        ...told,
        ...failureOf(answer, this.#stranger),
        'content-length': String(body.length),
      }
      res.writeHead(statusOf(answer), headers).end(body)
    } else if (answer.ok) {
      if (res.hasHeader('trailer')) res.addTrailers(told)
      res.end()
    } else this.#breakOff()
    this.#leave()
  }

  /** A client that reads no more keeps its connection for so long. */
  #leave(): void {
    const res = this.#res
    const { socket } = res
    if (!socket || res.writableFinished) return
    const cancel = this.#clock.after(LAST_READ_MS, () => socket.destroy())
    res.once('close', cancel)
  }

  /** Ends the connection in the middle of the body, after what is written already. */
  #breakOff(): void {
    const { socket } = this.#res
    if (!socket) return
    // Without chunks an end of the connection is an end of the body: only a reset is none.
    if (!this.#res.hasHeader('trailer')) return void socket.resetAndDestroy()
    // What was written a moment ago is corked until then, and would be lost.
    setImmediate(() => socket.destroySoon())
  }

  #begin(): void {
    const res = this.#res
    // A client of HTTP/1.0 knows no trailers.
    if (res.req.httpVersionMinor > 0) res.setHeader('trailer', `${EXIT_CODE}, ${DURATION}`)
    res.writeHead(200)
  }

  async #sendBoth(first: Uint8Array, second: Uint8Array): Promise<void> {
    await this.#send(first)
    await this.#send(second)
  }

  #send(bytes: Uint8Array): void | Promise<void> {
    const res = this.#res
    if (res.destroyed || res.write(bytes)) return undefined
    return new Promise((resolve) => {
      const cancel = this.#clock.after(TAKE_MS, () => res.socket?.destroy())
      const on = (): void => {
        cancel()
        res.off('drain', on)
        res.off('close', on)
        resolve()
      }
      res.on('drain', on)
      res.on('close', on)
    })
  }

  #hold(bytes: Uint8Array): void {
    const size = this.#size + bytes.length
    if (size > this.#head.length) {
      const wanted = Math.max(size, 2 * this.#head.length, HEAD_FIRST)
      const larger = Buffer.alloc(Math.min(FN_HEAD_MAX, wanted))
      larger.set(this.#head)
      this.#head = larger
    }
    this.#head.set(bytes, this.#size)
    this.#size = size
  }

  #taken(): Uint8Array {
    const held = this.#head.subarray(0, this.#size)
    this.#head = Buffer.alloc(0)
    this.#size = 0
    return held
  }
}

function statusOf(answer: Answer): number {
  if (answer.ok) return 200
  if (answer.reason === 'timeout') return 504
  return answer.reason === 'no-node' ? 503 : 502
}

const exitCodeOf = ({ exitCode }: Answer): Record<string, string> =>
  exitCode === null ? {} : { [EXIT_CODE]: String(exitCode) }

/** Names of nodes, and what is free on them, stand in the words of these. */
const ABOUT_NODES: Partial<Record<Reason, string>> = {
  'no-node': 'no node can run this now',
  'node-lost': 'its node was lost',
  'node-fault': 'its node failed',
}

function failureOf(answer: Answer, stranger: boolean): Record<string, string> {
  if (answer.ok) return {}
  const { reason } = answer
  const error = (stranger && reason && ABOUT_NODES[reason]) || answer.error
  return {
    ...(reason === undefined ? {} : { 'x-clutch-reason': reason }),
    'x-clutch-error': plain(error),
    ...(reason === 'no-node' ? { 'retry-after': String(NO_NODE_RETRY_S) } : {}),
  }
}

/** Visible ASCII and single spaces, at most ERROR_LENGTH_MAX: names of a guest's functions stand in it. */
const plain = (text: string): string =>
  text
    .replaceAll(/[^\u0021-\u007e]+/g, ' ')
    .trim()
    .slice(0, ERROR_LENGTH_MAX)

// The caller of a bench, a process of its own: what it costs is in nobody's figures, and it is the same for us and for
// the peers. Raw sockets, because a client of node:http costs as much as some of what is measured.
// Takes one order at a time over IPC: { kind: 'timed' } calls one after another and says how long each took; { kind:
// 'load' } has several callers call for a while and says how many calls ended. A call whose answer is wrong ends it all.
import { connect, type Socket } from 'node:net'
import { systemClock as clock } from '#lib/clock.ts'
import { AnswerReader } from '#sim/bench/answer-reader.ts'

/** `answer`: a pattern that the body of each answer must match. */
export type Target = { port: number; request: string; answer: string }

export type Order =
  | { kind: 'timed'; target: Target; calls: number }
  | { kind: 'load'; target: Target; callers: number; forMs: number }

export type Told =
  | { kind: 'timed'; ms: number[] }
  | { kind: 'load'; done: number; tookMs: number; ms: number[] }
  | { kind: 'failed'; message: string }

class Caller {
  readonly #socket: Socket
  readonly #request: string
  readonly #wanted: RegExp
  #settle: ((failure?: Error) => void) | undefined

  constructor({ port, request, answer }: Target) {
    this.#request = request
    this.#wanted = new RegExp(answer)
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true })
    const reader = new AnswerReader((status, body) => this.#answered(status, body))
    this.#socket.on('data', (chunk: Buffer) => reader.push(chunk))
    this.#socket.once('error', (error) => this.#settle?.(error))
    this.#socket.once('close', () => this.#settle?.(new Error(`port ${port} hung up`)))
  }

  /** How long until the whole answer was there, in ms. */
  async call(): Promise<number> {
    const began = clock.monotonic()
    await new Promise<void>((resolve, reject) => {
      this.#settle = (failure) => (failure ? reject(failure) : resolve())
      this.#socket.write(this.#request)
    })
    return clock.monotonic() - began
  }

  end(): void {
    this.#settle = undefined
    this.#socket.destroy()
  }

  #answered(status: number, body: string): void {
    const right = status === 200 && this.#wanted.test(body)
    this.#settle?.(right ? undefined : new Error(`answered ${status}: ${body.slice(0, 1_000)}`))
  }
}

async function timed({ target, calls }: Extract<Order, { kind: 'timed' }>): Promise<Told> {
  const caller = new Caller(target)
  const ms: number[] = []
  try {
    for (let at = 0; at < calls; at++) ms.push(await caller.call())
  } finally {
    caller.end()
  }
  return { kind: 'timed', ms }
}

async function load({ target, callers, forMs }: Extract<Order, { kind: 'load' }>): Promise<Told> {
  const began = clock.monotonic()
  const ms: number[] = []
  const one = async (): Promise<void> => {
    const caller = new Caller(target)
    try {
      while (clock.monotonic() - began < forMs) ms.push(await caller.call())
    } finally {
      caller.end()
    }
  }
  await Promise.all(Array.from({ length: callers }, one))
  return { kind: 'load', done: ms.length, tookMs: clock.monotonic() - began, ms }
}

process.on('message', (message) => {
  const order = message as Order
  const running = order.kind === 'timed' ? timed(order) : load(order)
  running
    .catch((error: unknown): Told => ({ kind: 'failed', message: String(error) }))
    .then((told) => process.send?.(told))
    .catch(() => process.exit(1))
})
// Whoever ordered is gone.
process.on('disconnect', () => process.exit(0))

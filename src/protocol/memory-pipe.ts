// Two pipes joined in memory: for tests, and for worlds with a seed. Delivery is asynchronous, in order, and honours
// back-pressure; a direction can be held to play a peer that does not read.
import type { AppError } from '#lib/error.ts'
import { Closing, Inlet, peerClosed, type Address, type Pipe } from '#protocol/pipe.ts'

export type MemoryEnd = {
  pipe: Pipe
  /** Stops taking what the other end writes, as a peer that does not read does; `false` goes on. */
  hold(held: boolean): void
  /** Bytes the other end wrote that this one has not taken. */
  waiting(): number
}

export type MemoryPipeOptions = {
  /** The public keys (hex) of the two ends. */
  peers?: readonly [string, string]
  /** Bytes written and not taken, before `write` says wait. */
  writeAhead?: number
  /** Delivers at most this many bytes at once, so that frames arrive cut. */
  chunkMax?: number
}

const WRITE_AHEAD = 256 * 1024
const ADDRESS: Address = { host: 'memory', port: 0 }

/** What one end writes the other receives; destroying one closes the other with PIPE_CLOSED_BY_PEER. */
export function memoryPipes(options: MemoryPipeOptions = {}): [MemoryEnd, MemoryEnd] {
  const [left = '00'.repeat(32), right = '11'.repeat(32)] = options.peers ?? []
  const rightward = new Direction(options)
  const leftward = new Direction(options)
  const closings = [new Closing(), new Closing()] as const
  const end = (at: 0 | 1, peer: string): MemoryEnd => {
    const [out, from] = at === 0 ? [rightward, leftward] : [leftward, rightward]
    const [own, other] = at === 0 ? closings : [closings[1], closings[0]]
    const destroy = (error?: AppError): void => {
      if (!own.close(error)) return
      out.stop()
      from.stop()
      setImmediate(() => other.close(peerClosed()))
    }
    const pipe: Pipe = {
      transport: 'tls',
      copies: false,
      peer,
      remote: ADDRESS,
      write: (bytes) => own.closed || out.write(bytes),
      receive: (onData) => from.inlet.receive(onData),
      onDrain: (fn) => {
        out.onDrain = fn
      },
      onClose: (fn) => own.onClose(fn),
      destroy,
      close: () => out.end(() => destroy()),
    }
    return { pipe, hold: (held) => from.hold(held), waiting: () => from.waiting }
  }
  return [end(0, right), end(1, left)]
}

class Direction {
  readonly inlet: Inlet
  readonly #writeAhead: number
  readonly #chunkMax: number
  #queue: Buffer[] = []
  #held = false
  #scheduled = false
  #full = false
  #onEmpty: (() => void) | undefined
  waiting = 0
  onDrain: () => void = () => {}

  constructor({ writeAhead = WRITE_AHEAD, chunkMax = Infinity }: MemoryPipeOptions) {
    this.#writeAhead = writeAhead
    this.#chunkMax = chunkMax
    this.inlet = new Inlet(() => this.#schedule())
  }

  write(bytes: Uint8Array): boolean {
    if (this.#onEmpty) return true
    this.#queue.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    this.waiting += bytes.length
    this.#schedule()
    this.#full = this.waiting >= this.#writeAhead
    return !this.#full
  }

  hold(held: boolean): void {
    this.#held = held
    this.#schedule()
  }

  end(onEmpty: () => void): void {
    this.#onEmpty = onEmpty
    this.#schedule()
  }

  stop(): void {
    this.#queue = []
    this.waiting = 0
    this.#held = true
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#deliver()
    })
  }

  #deliver(): void {
    while (!this.#held && this.inlet.hungry) {
      const next = this.#queue.shift()
      if (!next) break
      const piece = next.subarray(0, this.#chunkMax)
      if (piece.length < next.length) this.#queue.unshift(next.subarray(piece.length))
      this.waiting -= piece.length
      this.inlet.push(Buffer.from(piece))
    }
    if (this.#full && this.waiting < this.#writeAhead) {
      this.#full = false
      this.onDrain()
    }
    if (this.#queue.length === 0 && !this.#held) this.#onEmpty?.()
  }
}

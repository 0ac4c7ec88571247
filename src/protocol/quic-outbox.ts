// What waits for a QUIC stream: copied into one of two buffers, one filling while the addon takes the other.
//
// Invariants
// 1. `write` has copied when it returns.
// 2. A buffer is filled again only after the addon's promise for it settled: quinn has copied it by then.
// 3. Buffers grow with use, so that a control connection keeps a few KiB, and nothing is allocated per write.

/** What of the addon's stream the outbox uses. */
export type Outlet = { write(bytes: Uint8Array): Promise<void>; finishWrite(): void }

/** Bytes not yet taken by the addon, before `write` says wait. */
const WRITE_AHEAD = 256 * 1024
const BUFFER_MIN = 1024
const BUFFER_MAX = 256 * 1024

export class QuicOutbox {
  readonly #outlet: Outlet
  readonly #onDrain: () => void
  readonly #onError: (error: unknown) => void
  #filling: Buffer = Buffer.alloc(0)
  #filled = 0
  #spare: Buffer = Buffer.alloc(0)
  #overflow: Buffer[] = [] // what found no room, in order
  #queued = 0
  #running = false
  #stopped = false
  #ended = false

  constructor(outlet: Outlet, on: { drain: () => void; error: (error: unknown) => void }) {
    this.#outlet = outlet
    this.#onDrain = on.drain
    this.#onError = on.error
  }

  get ended(): boolean {
    return this.#ended
  }

  write(bytes: Uint8Array): boolean {
    if (this.#ended || this.#stopped) return true
    if (this.#overflow.length > 0 || !this.#fill(bytes)) this.#overflow.push(Buffer.from(bytes))
    this.#queued += bytes.length
    this.#start()
    return this.#queued < WRITE_AHEAD
  }

  /** Says the end once everything is taken. */
  end(): void {
    this.#ended = true
    this.#start()
  }

  stop(): void {
    this.#stopped = true
    this.#overflow = []
    this.#filling = this.#spare = Buffer.alloc(0)
    this.#filled = 0
  }

  #start(): void {
    if (this.#running || this.#stopped) return
    this.#running = true
    this.#run().catch((error) => this.#onError(error))
  }

  async #run(): Promise<void> {
    for (let out = this.#take(); out && !this.#stopped; out = this.#take()) {
      await this.#outlet.write(out)
      const wasFull = this.#queued >= WRITE_AHEAD
      this.#queued -= out.length
      if (wasFull && this.#queued < WRITE_AHEAD) this.#onDrain()
    }
    this.#running = false
    if (this.#ended && !this.#stopped) this.#outlet.finishWrite()
  }

  /** The bytes to send now; until the next call they belong to the addon. */
  #take(): Buffer | undefined {
    if (this.#filled === 0) return this.#overflow.shift()
    const out = this.#filling
    const size = this.#filled
    this.#filling = this.#spare
    this.#filled = 0
    this.#spare = out
    for (let next = this.#overflow[0]; next && this.#fill(next); next = this.#overflow[0])
      this.#overflow.shift()
    return out.subarray(0, size)
  }

  #fill(bytes: Uint8Array): boolean {
    const size = this.#filled + bytes.length
    if (size > BUFFER_MAX) return false
    if (size > this.#filling.length) {
      const grown = Buffer.allocUnsafeSlow(Math.min(BUFFER_MAX, Math.max(2 * size, BUFFER_MIN)))
      this.#filling.copy(grown, 0, 0, this.#filled)
      this.#filling = grown
    }
    this.#filling.set(bytes, this.#filled)
    this.#filled = size
    return true
  }
}

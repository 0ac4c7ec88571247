// Frames of one turn of the loop, written into one slab and handed to the pipe in as few writes as may be.
//
// Invariants
// 1. Unless the pipe copies, a slab is written once, front to back, and never again: the pipe keeps what it was handed.
// 2. What a stream was given to send is not kept after the call: its writer may use the memory again.
import { FRAME, HEADER_BYTES, writeHeader } from '#protocol/frame.ts'

/** Slabs grow with the batches that they hold: a pipe that says little holds little. */
const SLAB_BYTES_FIRST = 4 * 1024
const SLAB_BYTES_MAX = 256 * 1024
/** Handed over as soon as it is this long, so that the peer starts while we still fill. */
const BATCH_BYTES = 128 * 1024
/** Payloads from here on go to a copying pipe as they are: one copy fewer. */
const DIRECT_BYTES = 2 * 1024

export class Batch {
  readonly #copies: boolean
  readonly #write: (bytes: Uint8Array) => void
  #slab: Buffer = Buffer.alloc(0)
  #start = 0
  #end = 0

  constructor(copies: boolean, write: (bytes: Uint8Array) => void) {
    this.#copies = copies
    this.#write = write
  }

  header(type: number, value: number, id: number): void {
    this.#room(HEADER_BYTES)
    writeHeader(this.#slab, this.#end, { type, value, id })
    this.#end += HEADER_BYTES
  }

  data(id: number, payload: Buffer): void {
    if (this.#copies && payload.length >= DIRECT_BYTES) {
      this.header(FRAME.data, payload.length, id)
      this.handOver()
      return this.#write(payload)
    }
    this.#room(HEADER_BYTES + payload.length)
    writeHeader(this.#slab, this.#end, { type: FRAME.data, value: payload.length, id })
    payload.copy(this.#slab, this.#end + HEADER_BYTES)
    this.#end += HEADER_BYTES + payload.length
    if (this.#end - this.#start >= BATCH_BYTES) this.handOver()
  }

  handOver(): void {
    if (this.#end === this.#start) return
    const bytes = this.#slab.subarray(this.#start, this.#end)
    this.#start = this.#end
    this.#write(bytes)
    if (this.#copies) this.#start = this.#end = 0
  }

  /** Room for `size` more bytes of the same batch; a batch that fills half a slab moves to one of twice the size. */
  #room(size: number): void {
    if (this.#end + size <= this.#slab.length) return
    const batch = this.#end - this.#start + size
    let length = Math.max(this.#slab.length, SLAB_BYTES_FIRST)
    while (batch > length / 2 && length < SLAB_BYTES_MAX) length *= 2
    const slab = Buffer.allocUnsafeSlow(Math.max(length, size))
    if (batch > slab.length) this.handOver()
    else this.#slab.copy(slab, 0, this.#start, this.#end)
    this.#end -= this.#start
    this.#start = 0
    this.#slab = slab
  }
}

/** The bytes that an answer keeps of one output: a node that sends them one by one costs no more. */
export class Kept {
  readonly #max: number
  #buffer = Buffer.alloc(0)
  #bytes = 0
  truncated = false

  constructor(max: number) {
    this.#max = max
  }

  get empty(): boolean {
    return this.#bytes === 0 && !this.truncated
  }

  add(bytes: Uint8Array): void {
    const size = Math.min(bytes.length, this.#max - this.#bytes)
    if (size < bytes.length) this.truncated = true
    if (this.#bytes + size > this.#buffer.length) {
      const wanted = Math.max(this.#bytes + size, 2 * this.#buffer.length)
      const larger = Buffer.alloc(Math.min(this.#max, wanted))
      larger.set(this.#buffer)
      this.#buffer = larger
    }
    this.#buffer.set(bytes.subarray(0, size), this.#bytes)
    this.#bytes += size
  }

  all(): Uint8Array {
    return this.#buffer.subarray(0, this.#bytes)
  }
}

// Who sends next. Streams that have something to send stand in one of two lines.
//
//   first   the class `small` (control, exec, logs), and any stream that took little of the pipe lately and has little to say
//   bulk    the others
//
// Invariants
// 1. A stream stands in at most one line, once; after its turn it goes to the back.
// 2. The first line goes first, but after FIRST_RUN_BYTES of it in a row one bulk turn is let in: nobody starves.

export type StreamClass = 'small' | 'bulk'
/** One stream's turn while others wait. */
export const TURN_BYTES = 16 * 1024
/** A message up to this size is "little to say": a header, a call, an answer. */
const LITTLE_BYTES = 4 * 1024
/** What a stream may have taken lately and still count as light. */
const LIGHT_BYTES = 16 * 1024
/** A share of the pipe at or below one in this many is forgotten as fast as it is taken. */
const SHARE = 16
/** What is remembered of a stream's past at most, so that it is light again after SHARE times this of others' traffic. */
const REMEMBERED_MAX = 1 << 20
const FIRST_RUN_BYTES = 8 * TURN_BYTES

/** How much of the pipe a stream took lately. */
export class Share {
  #taken = 0
  #carried = 0 // the pipe's total when `#taken` was last brought up to date

  /** `carried`: bytes of all streams that the pipe has carried so far. */
  took(bytes: number, carried: number): void {
    this.#forget(carried)
    this.#taken = Math.min(this.#taken + bytes, REMEMBERED_MAX)
  }

  light(carried: number): boolean {
    this.#forget(carried)
    return this.#taken <= LIGHT_BYTES
  }

  #forget(carried: number): void {
    this.#taken = Math.max(0, this.#taken - (carried - this.#carried) / SHARE)
    this.#carried = carried
  }
}

export type Waiting = {
  readonly class: StreamClass
  readonly share: Share
  readonly pending: number
}

export class Turns<T extends Waiting> {
  readonly #first = new Line<T>()
  readonly #bulk = new Line<T>()
  #run = 0
  /** Bytes of all streams so far. */
  carried = 0

  get empty(): boolean {
    return this.#first.length + this.#bulk.length === 0
  }

  /** True when exactly one stream waits: it need not take turns. */
  get alone(): boolean {
    return this.#first.length + this.#bulk.length === 1
  }

  add(stream: T): void {
    const little = stream.pending <= LITTLE_BYTES && stream.share.light(this.carried)
    if (stream.class === 'small' || little) this.#first.push(stream)
    else this.#bulk.push(stream)
  }

  /** The stream whose turn it is; of the bulk line only with `bulkToo`, or when it is owed a turn (invariant 2). */
  next(bulkToo: boolean): T | undefined {
    const owed = this.#bulk.length > 0 && this.#run >= FIRST_RUN_BYTES
    if (this.#first.length > 0 && !owed) return this.#first.shift()
    if (!owed && !bulkToo) return undefined
    this.#run = 0
    return this.#bulk.shift()
  }

  /** The stream just had its turn and sent this much. */
  took(stream: T, bytes: number): void {
    this.carried += bytes
    this.#run += bytes
    stream.share.took(bytes, this.carried)
  }

  clear(): void {
    this.#first.clear()
    this.#bulk.clear()
  }
}

/** A queue whose `shift` does not move what stays. */
class Line<T> {
  #items: T[] = []
  #at = 0

  get length(): number {
    return this.#items.length - this.#at
  }

  push(item: T): void {
    this.#items.push(item)
  }

  shift(): T | undefined {
    const item = this.#items[this.#at++]
    if (this.#at >= this.#items.length) this.clear()
    else if (this.#at > 1024) {
      this.#items = this.#items.slice(this.#at)
      this.#at = 0
    }
    return item
  }

  clear(): void {
    this.#items = []
    this.#at = 0
  }
}

// What the engine remembers of rows that change rarely, and what it has been told of them since.
// 1. A read is named by the tick at which it began. What was told to have changed after that tick is not sure, however
//    late the answer of the read comes.
// 2. What is not sure is kept: while the store is away it is all there is to go by, but for what is told to be wrong.
// 3. Bounded: the oldest entries go, and too many changes count as a change of everything.

/** Orders reads and changes of one engine. */
export class Ticks {
  #now = 0

  get now(): number {
    return this.#now
  }

  next(): number {
    return ++this.#now
  }
}

/** Changes that are remembered one by one. */
const CHANGES_MAX = 10_000

type Entry<V> = { value: V; subject: string; readAt: number }

export class Known<V> {
  readonly #ticks: Ticks
  readonly #max: number
  readonly #entries = new Map<string, Entry<V>>()
  readonly #changes = new Map<string, number>()
  #allAt = 0

  constructor(ticks: Ticks, max: number) {
    this.#ticks = ticks
    this.#max = max
  }

  /** When the subject last may have changed. */
  changedAt(subject: string): number {
    return Math.max(this.toldAt(subject), this.#allAt)
  }

  /** When it was last told that the subject itself changed. */
  toldAt(subject: string): number {
    return this.#changes.get(subject) ?? 0
  }

  /** What is known of the subject may not be so any more. */
  changed(subject: string): void {
    if (this.#changes.size >= CHANGES_MAX) this.changedAll()
    else this.#changes.set(subject, this.#ticks.next())
  }

  changedAll(): void {
    this.#allAt = this.#ticks.next()
    this.#changes.clear()
  }

  /** Keeps what a read that began at `readAt` found. An older read does not undo a newer one. */
  learn(key: string, value: V, of: { subject: string; readAt: number }): void {
    const known = this.#entries.get(key)
    if (known && known.readAt > of.readAt) return
    this.#entries.delete(key)
    this.#entries.set(key, { value, ...of })
    const [oldest] = this.#entries.keys()
    if (this.#entries.size > this.#max && oldest !== undefined) this.#entries.delete(oldest)
  }

  forget(key: string): void {
    this.#entries.delete(key)
  }

  /** Undefined: not known, or changed since it was read. */
  sure(key: string): V | undefined {
    const entry = this.#entries.get(key)
    return entry && entry.readAt >= this.changedAt(entry.subject) ? entry.value : undefined
  }

  /** What was known last, and that nothing has been told of since; it need not be sure. */
  last(key: string): V | undefined {
    const entry = this.#entries.get(key)
    return entry && entry.readAt >= this.toldAt(entry.subject) ? entry.value : undefined
  }

  /** What was known last, right or wrong. */
  any(key: string): V | undefined {
    return this.#entries.get(key)?.value
  }
}

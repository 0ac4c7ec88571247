// The history of invocations on its way to the store (FN-7): a crash loses what was not flushed, HISTORY_FLUSH_MS worth.
import { AppError } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { Store } from '#store/connect.ts'
import { insertInvocations, type InvocationRow } from '#store/functions/invocations.ts'

/** While the store is away: some seconds of a busy engine, a few megabytes. Then the oldest are dropped and counted. */
const KEPT_MAX = 20_000
/** The text of an error in a row; the caller got all of it. */
const ERROR_MAX = 2_000

export class History {
  readonly #db: Store
  readonly #log: Logger
  #rows: InvocationRow[] = []
  #flushing: Promise<number> | undefined
  #dropped = 0

  constructor(deps: { db: Store; log: Logger }) {
    this.#db = deps.db
    this.#log = deps.log
  }

  add(row: InvocationRow): void {
    if (this.#rows.length >= KEPT_MAX) this.#drop()
    // What a guest or a node says is any text; the store refuses NUL and halves of characters.
    if (row.error !== null)
      row.error = row.error.slice(0, ERROR_MAX).replaceAll('\0', '').toWellFormed()
    this.#rows.push(row)
  }

  /** The oldest tenth: one by one each would move all the others. */
  #drop(): void {
    this.#dropped += this.#rows.splice(0, KEPT_MAX / 10).length
  }

  /** Writes all that was added; returns how many. When the store is away they are kept for the next time. */
  async flush(): Promise<number> {
    // Another flush is under way: what it took is written by it, what came since by us.
    while (this.#flushing) await this.#flushing.catch(() => undefined)
    const rows = this.#rows
    if (rows.length === 0) return 0
    this.#rows = []
    this.#flushing = this.#write(rows)
    try {
      return await this.#flushing
    } finally {
      this.#flushing = undefined
    }
  }

  async #write(rows: InvocationRow[]): Promise<number> {
    let written: number
    try {
      written = await this.#insert(rows)
    } catch (error) {
      this.#rows = [...rows, ...this.#rows].slice(-KEPT_MAX)
      throw error
    }
    if (this.#dropped > 0)
      this.#log.warn({ dropped: this.#dropped }, 'history was dropped: the store was away')
    this.#dropped = 0
    return written
  }

  /** Rejects while the store is away. A row that it refuses costs itself only: everybody's are in one batch. */
  async #insert(rows: readonly InvocationRow[]): Promise<number> {
    try {
      await insertInvocations(this.#db, rows)
      return rows.length
    } catch (error) {
      if (error instanceof AppError && error.code === 'UNAVAILABLE') throw error
      if (rows.length > 1) {
        const half = rows.length >> 1
        return (await this.#insert(rows.slice(0, half))) + (await this.#insert(rows.slice(half)))
      }
      this.#log.error({ err: error, id: rows[0]?.id }, 'a row of history was refused by the store')
      return 0
    }
  }
}

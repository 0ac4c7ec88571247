// Work of many orgs through a few places: each org in its turn, whatever number of calls another has waiting.

export class OrgTurns {
  readonly #placesMax: number
  #running = 0
  /** In the order of their turns. */
  readonly #waiting = new Map<string, (() => void)[]>()

  constructor(placesMax: number) {
    this.#placesMax = placesMax
  }

  /** Does `work` when a place is free and it is the org's turn. */
  async run<T>(orgId: string, work: () => Promise<T>): Promise<T> {
    if (this.#running < this.#placesMax) this.#running++
    else
      await new Promise<void>((go) => {
        const mine = this.#waiting.get(orgId)
        if (mine) mine.push(go)
        else this.#waiting.set(orgId, [go])
      })
    try {
      return await work()
    } finally {
      this.#next()
    }
  }

  /** Hands the place on. */
  #next(): void {
    const [next] = this.#waiting
    if (!next) {
      this.#running--
      return
    }
    const [orgId, mine] = next
    const go = mine.shift()
    this.#waiting.delete(orgId)
    if (mine.length > 0) this.#waiting.set(orgId, mine)
    go?.()
  }
}

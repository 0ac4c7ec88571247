// User ids for children, from a range that nothing else on the machine should use.
// 1. No two children share a uid, of several programs neither: a uid is claimed for the life of its claimer by a file
//    in a folder of its own; who finds another's live claim beside its own withdraws.
// 2. A claimed uid is used again only by its claimer, and only when no process of it is left (places.ts).
// 3. Claims of programs that are gone count for nothing and are removed by whoever comes by.
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isRunning, type Owner, ownerName, parseOwner } from '#wasm/jail/owner.ts'

export type UidRange = { first: number; last: number }

/** Debian gives 60000 to 64999 to packages on request only. */
export const UID_RANGE: UidRange = { first: 64_100, last: 64_999 }

/** In memory: gone with the machine, like those that claim. */
const CLAIMS = '/run/clutch-uids'

/** All uids that some process of this machine has now. */
export function uidsInUse(): Set<number> {
  const uids = new Set<number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const uid = statSync(`/proc/${name}`, { throwIfNoEntry: false })?.uid
    if (uid !== undefined) uids.add(uid)
  }
  return uids
}

export class Uids {
  readonly #range: UidRange
  readonly #owner: Owner
  readonly #folder: string
  readonly #claimed = new Set<number>()
  #next: number

  constructor(range: UidRange, owner: Owner, folder = CLAIMS) {
    this.#range = range
    this.#owner = owner
    this.#folder = folder
    this.#next = range.first
  }

  /** Claims a uid that nothing on the machine uses. Undefined: the whole range is taken. */
  take(): number | undefined {
    const used = uidsInUse()
    const { first, last } = this.#range
    for (let tried = first; tried <= last; tried++) {
      const uid = this.#next
      this.#next = uid === last ? first : uid + 1
      if (!this.#claimed.has(uid) && !used.has(uid) && this.#claim(uid)) return uid
    }
    return undefined
  }

  /** Withdraws every claim. */
  close(): void {
    for (const uid of this.#claimed) this.#withdraw(uid)
    this.#claimed.clear()
  }

  #claim(uid: number): boolean {
    const folder = join(this.#folder, String(uid))
    mkdirSync(folder, { recursive: true, mode: 0o755 })
    const own = ownerName(this.#owner)
    try {
      writeFileSync(join(folder, own), '', { flag: 'wx' })
    } catch {
      // Another jail of this same program has it.
      return false
    }
    for (const name of readdirSync(folder)) {
      if (name === own) continue
      const other = parseOwner(name)
      if (other !== undefined && isRunning(other)) {
        this.#withdraw(uid)
        return false
      }
      rmSync(join(folder, name), { force: true })
    }
    this.#claimed.add(uid)
    return true
  }

  #withdraw(uid: number): void {
    rmSync(join(this.#folder, String(uid), ownerName(this.#owner)), { force: true })
  }
}

// Places in the jail: a uid and cgroups, one child at a time.
import { AppError } from '#lib/error.ts'
import { type CgroupSlot, type Home, openSlot } from '#wasm/jail/cgroup.ts'
import { type Uids, uidsInUse } from '#wasm/jail/uids.ts'

export type Place = {
  uid: number | undefined
  cgroup: CgroupSlot | undefined
}

/** bubblewrap, and the shell before it, beside the threads of the child. */
const TASKS_AROUND = 4

export class Places {
  readonly #uids: Uids | undefined
  readonly #homes: readonly Home[]
  /** The one used longest ago first. */
  readonly #free: Place[] = []
  #made = 0

  constructor(uids: Uids | undefined, homes: readonly Home[]) {
    this.#uids = uids
    this.#homes = homes
  }

  /** Throws UNAVAILABLE `JAIL_FULL`. */
  take(tasksMax: number): Place {
    const place = this.#free.shift() ?? this.#make()
    place.cgroup?.reset(tasksMax + TASKS_AROUND)
    return place
  }

  /** For a place that `isEmpty`. */
  give(place: Place): void {
    this.#free.push(place)
  }

  #make(): Place {
    const uid = this.#uids?.take()
    if (this.#uids !== undefined && uid === undefined)
      throw new AppError('UNAVAILABLE', 'every uid of the jail has a child: no other can start', {
        details: { reason: 'JAIL_FULL', next: 'give a wider range with --jail-uids' },
      })
    const name = String(++this.#made)
    return { uid, cgroup: this.#homes.length === 0 ? undefined : openSlot(this.#homes, name) }
  }
}

/** Whether no process is left in it. */
export const isEmpty = ({ uid, cgroup }: Place): boolean =>
  cgroup?.isEmpty() ?? (uid === undefined || !uidsInUse().has(uid))

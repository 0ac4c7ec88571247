// Tickets for data pipes (§7): each works once, for ten seconds, for one session and the key that holds it.
import type { Cancel, Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'
import type { Pipe } from '#protocol/pipe.ts'

const TICKET_BYTES = 24

export type TicketHolder = { peer: string; epoch: number }
type Held = {
  holder: TicketHolder
  take: (pipe: Pipe) => void
  cancel: Cancel
}

export class Tickets {
  readonly #held = new Map<string, Held>()
  readonly #clock: Clock
  readonly #random: Random

  constructor(clock: Clock, random: Random) {
    this.#clock = clock
    this.#random = random
  }

  /** `take` is called with the pipe that joined, or `expire` once when none did within `ms`. */
  issue(
    holder: TicketHolder,
    ms: number,
    end: { take: (pipe: Pipe) => void; expire: () => void },
  ): { ticket: Uint8Array; cancel: Cancel } {
    const ticket = this.#random.bytes(TICKET_BYTES)
    const name = Buffer.from(ticket).toString('hex')
    const timer = this.#clock.after(ms, () => {
      if (this.#held.delete(name)) end.expire()
    })
    const cancel = (): void => {
      timer()
      this.#held.delete(name)
    }
    this.#held.set(name, { holder, take: end.take, cancel })
    return { ticket, cancel }
  }

  /** Uses the ticket up. Undefined when it is unknown, used, too old, of another epoch, or another key's. */
  redeem(
    join: { ticket: Uint8Array; epoch: number },
    peer: string,
  ): ((pipe: Pipe) => void) | undefined {
    const held = this.#held.get(Buffer.from(join.ticket).toString('hex'))
    if (!held || held.holder.peer !== peer || held.holder.epoch !== join.epoch) return undefined
    held.cancel()
    return held.take
  }
}

// The first seconds of a connection, when anybody may be at its other end (§7).
//
// Invariants
// 1. At most N connections of an address are in here, each for REGISTER_WITHIN_MS at most.
// 2. The engine speaks first: a node that does not trust the statement sends no secret.
// 3. A message is small, its token is checked for form and fleet before the store is asked, and the store is asked by a
//    few at a time.
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import { REGISTER_WITHIN_MS } from '#core/node/limits.ts'
import { parseAs } from '#protocol/codec.ts'
import { parseToken } from '#protocol/enroll-token.ts'
import { Framed, MESSAGE_MAX } from '#protocol/framed.ts'
import {
  Opening,
  PROTOCOL_VERSION,
  PROTOCOL_VERSIONS,
  type Join,
  type Register,
} from '#protocol/messages.ts'
import type { Pipe } from '#protocol/pipe.ts'
import { refusal, type Refusal } from '#engine/gateway/admit.ts'
import type { GatewayKeys } from '#engine/gateway/gateway-keys.ts'

/** A REGISTER with its certificate is under 2 KiB. */
const OPENING_BYTES_MAX = 8 * 1024

export type OpeningDeps = {
  clock: Clock
  log: Logger
  keys: GatewayKeys
  perAddressMax: number
  /** Answers the refusal, or undefined when the session has begun on the framed pipe. */
  register(message: Register, framed: Framed): Promise<Refusal | undefined>
  join(message: Join, framed: Framed): Refusal | undefined
}

export class Openings {
  readonly #deps: OpeningDeps
  readonly #byAddress = new Map<string, number>()

  constructor(deps: OpeningDeps) {
    this.#deps = deps
  }

  /** Serves a fresh pipe until it is a session's, or refused. Never rejects. */
  async serve(pipe: Pipe): Promise<void> {
    const address = pipe.remote.host
    const open = this.#byAddress.get(address) ?? 0
    if (open >= this.#deps.perAddressMax) return pipe.destroy(busy(address, open))
    this.#byAddress.set(address, open + 1)
    let counted = true
    const leave = (): void => {
      if (!counted) return
      counted = false
      const left = (this.#byAddress.get(address) ?? 1) - 1
      if (left === 0) this.#byAddress.delete(address)
      else this.#byAddress.set(address, left)
    }
    pipe.onClose(leave)
    const framed = new Framed(pipe, OPENING_BYTES_MAX)
    try {
      const refused = await this.#open(framed)
      if (refused) this.#refuse(framed, refused)
    } catch (error) {
      this.#failed(framed, error)
    } finally {
      leave()
    }
  }

  get unregistered(): number {
    let sum = 0
    for (const count of this.#byAddress.values()) sum += count
    return sum
  }

  async #open(framed: Framed): Promise<Refusal | undefined> {
    const { clock, keys } = this.#deps
    framed.send({ t: 'hello', versions: [...PROTOCOL_VERSIONS], statement: keys.statement() })
    const stop = clock.after(REGISTER_WITHIN_MS, () =>
      this.#refuse(
        framed,
        refusal('TOO_LATE', `nothing registered within ${REGISTER_WITHIN_MS} ms`, true),
      ),
    )
    const raw = await framed.next().finally(stop)
    if (raw === undefined) return undefined
    const message = parseAs(Opening, raw, 'first message')
    const wrong = version(message.version)
    if (wrong) return wrong
    framed.allow(MESSAGE_MAX)
    if (message.t === 'join') return this.#deps.join(message, framed)
    const token = this.#checkToken(message)
    return token ?? this.#deps.register(message, framed)
  }

  /** Form and fleet, without the store. */
  #checkToken({ token }: Register): Refusal | undefined {
    if (token === undefined) return undefined
    try {
      if (this.#deps.keys.isOurs(parseToken(token).fingerprint)) return undefined
      return refusal('TOKEN_OTHER_FLEET', 'the token was made by another fleet: check --server')
    } catch (error) {
      if (error instanceof AppError) return refusal('TOKEN_MALFORMED', error.message)
      throw error
    }
  }

  #refuse(framed: Framed, { reason, message, retry }: Refusal): void {
    this.#deps.log.info(
      { reason, address: framed.pipe.remote.host, peer: framed.peer.slice(0, 16) },
      'a connection was refused',
    )
    framed.send({ t: 'refused', reason, message: message.slice(0, 1024), retry })
    framed.close()
  }

  #failed(framed: Framed, error: unknown): void {
    if (error instanceof AppError && error.code === 'INVALID')
      return this.#refuse(framed, refusal('MESSAGE_MALFORMED', error.message, true))
    if (error instanceof AppError && error.details.reason?.startsWith('PIPE_')) return
    if (error instanceof AppError && error.code === 'UNAVAILABLE')
      return this.#refuse(
        framed,
        refusal('store_unavailable', 'the engine cannot reach its database at the moment', true),
      )
    this.#deps.log.error({ err: error }, 'a connection could not be served')
    this.#refuse(framed, refusal('INTERNAL', 'the engine failed; its log says why', true))
  }
}

function version(spoken: number): Refusal | undefined {
  if (PROTOCOL_VERSIONS.includes(spoken)) return undefined
  const served = `this engine serves ${PROTOCOL_VERSIONS.join(', ')}`
  return spoken > PROTOCOL_VERSION
    ? refusal(
        'VERSION',
        `the agent speaks protocol version ${spoken}; ${served}: upgrade the engine`,
        true,
      )
    : refusal(
        'VERSION',
        `the agent speaks protocol version ${spoken}; ${served}: upgrade the agent`,
      )
}

const busy = (address: string, open: number): AppError =>
  new AppError('RATE_LIMITED', `${open} connections of ${address} have not registered yet`, {
    details: { reason: 'BUSY' },
  })

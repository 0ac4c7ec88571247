// One session of the dialling side, from the dial to its outcome.
//
// Invariants
// 1. The phase owns its timers and sockets; leaving a phase ends them. Phases only go forward.
// 2. `run` never rejects, and resolves once.
// 3. A session that misses ACKS_MISSED_MAX acknowledgements is over, whatever the transport still believes.
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import { ACKS_MISSED_MAX, DIAL_TIMEOUT_MS } from '#core/node/limits.ts'
import { parseAs } from '#protocol/codec.ts'
import { dial, type Attempt } from '#protocol/dial.ts'
import { Framed } from '#protocol/framed.ts'
import type { FramedStream } from '#protocol/framed-stream.ts'
import type { Identity } from '#protocol/identity.ts'
import {
  FromEngine,
  type FromNode,
  type Register,
  type StreamHeader,
  type Welcome,
} from '#protocol/messages.ts'
import type { Transport } from '#protocol/pipe.ts'
import type { RootPin } from '#protocol/statement.ts'
import { unreachable } from '#lib/assert.ts'
import { greet } from '#session/greet.ts'
import { NodePipes } from '#session/node-pipes.ts'
import type { Outcome } from '#session/outcome.ts'

/** What the program around a session answers and is told. Each is called on the current session only. */
export type SessionHost = {
  /** What REGISTER says, read anew at every dial. */
  register(): Omit<Register, 't' | 'version'>
  pin(): RootPin
  /** The fleet's certificate for the identity, once there is one: the TLS client certificate. */
  certificatePem(): string | undefined
  welcomed(welcome: Welcome, link: Link): void
  desired(generation: number): void
  command(command: Extract<FromEngine, { t: 'command' }>): void
  cancel(commandId: string): void
  renewed(certificate: Uint8Array): void
  /** A stream of the engine's, whose header was read. The host ends it. */
  stream(header: StreamHeader, stream: FramedStream): void
}

/** How the engine was reached, and why not otherwise: ND-3 wants it said. */
export type Link = { transport: Transport; others: readonly Attempt[] }

export type SessionDeps = {
  server: { host: string; port: number }
  identity: Identity
  clock: Clock
  random: Random
  host: SessionHost
  /** Both unless given. */
  transports?: readonly Transport[]
}

type Phase =
  | { name: 'dialling'; abort: AbortController }
  | { name: 'registering'; framed: Framed }
  | {
      name: 'serving'
      framed: Framed
      pipes: NodePipes
      since: number
      beat: Cancel
      beatMs: number
      sent: number
      acked: number
    }
  | { name: 'closing' }

export class Session {
  readonly #deps: SessionDeps
  #phase: Phase = { name: 'dialling', abort: new AbortController() }
  #resolve: (outcome: Outcome) => void = () => {}
  readonly #outcome: Promise<Outcome>

  constructor(deps: SessionDeps) {
    this.#deps = deps
    this.#outcome = new Promise((resolve) => (this.#resolve = resolve))
  }

  run(): Promise<Outcome> {
    this.#open().catch((error) => this.#failed(error))
    return this.#outcome
  }

  get serving(): boolean {
    return this.#phase.name === 'serving'
  }

  /** Says something to the engine; dropped unless the session serves. */
  send(message: FromNode): void {
    if (this.#phase.name === 'serving') this.#phase.framed.send(message)
  }

  /** Tells the engine that this side stops on purpose: no new streams come, and those that run can end. */
  leave(): void {
    this.send({ t: 'leaving' })
  }

  /** Ends, after everything said has arrived. */
  close(): void {
    const phase = this.#phase
    if (phase.name !== 'serving') return this.#end({ kind: 'drained' })
    this.#phase = { name: 'closing' }
    phase.beat()
    const { framed, pipes } = phase
    framed.onClose(() => this.#resolve({ kind: 'drained' }))
    // The streams first: an invocation that has just ended must not look as if its node was lost.
    pipes.end().then(
      () => framed.close(),
      () => framed.close(),
    )
  }

  async #open(): Promise<void> {
    const { server, identity, clock, host, transports } = this.#deps
    const phase = this.#phase
    if (phase.name !== 'dialling') return
    const certificatePem = host.certificatePem()
    const dialled = await dial({
      ...server,
      identity,
      clock,
      signal: phase.abort.signal,
      timeoutMs: DIAL_TIMEOUT_MS,
      ...(certificatePem === undefined ? {} : { certificatePem }),
      ...(transports === undefined ? {} : { transports }),
    })
    if (dialled.outcome === 'failed')
      return this.#end({ kind: 'retryable', reason: 'UNREACHABLE', message: dialled.message })
    if (this.#phase !== phase) return dialled.pipe.destroy()
    const framed = new Framed(dialled.pipe)
    this.#phase = { name: 'registering', framed }
    const { answer, statement } = await greet(framed, { clock, pin: host.pin() }, (version) => ({
      t: 'register',
      version,
      ...host.register(),
    }))
    if (this.#phase.name !== 'registering') return
    if (answer.t === 'refused') {
      const { reason, message, retry } = answer
      return this.#end({ kind: retry ? 'retryable' : 'fatal', reason, message })
    }
    if (answer.t !== 'welcome') throw new AppError('INVALID', `'${answer.t}' answers no REGISTER`)
    if (Buffer.from(answer.fleetRoot).toString('hex') !== statement.rootKey)
      throw new AppError(
        'INVALID',
        "the welcome names another fleet root than the engine's statement",
      )
    this.#serve(framed, answer, { transport: dialled.transport, others: dialled.others })
  }

  #serve(framed: Framed, welcome: Welcome, link: Link): void {
    const { clock, random, host, server, identity } = this.#deps
    const pipes = new NodePipes({
      server,
      identity,
      clock,
      pin: () => host.pin(),
      certificatePem: () => host.certificatePem(),
      transport: link.transport,
      epoch: welcome.epoch,
      onStream: (header, stream) => host.stream(header, stream),
    })
    const beatMs = welcome.heartbeatMs
    this.#phase = {
      name: 'serving',
      framed,
      pipes,
      since: clock.monotonic(),
      // A fleet that was welcomed in one second should not beat in one.
      beat: clock.after(random.float() * beatMs, () => this.#beat()),
      beatMs,
      sent: 0,
      acked: 0,
    }
    host.welcomed(welcome, link)
    framed.onClose((error) => this.#lost('CLOSED', error?.message ?? 'the engine closed it'))
    framed.onMessage((raw) => this.#take(parseAs(FromEngine, raw, 'message of an engine')))
    host.desired(welcome.desired.generation)
  }

  #beat(): void {
    const phase = this.#phase
    if (phase.name !== 'serving') return
    if (phase.sent - phase.acked >= ACKS_MISSED_MAX)
      return this.#lost(
        'ACKS_MISSED',
        `${ACKS_MISSED_MAX} heartbeats in a row were not acknowledged`,
      )
    phase.framed.send({ t: 'heartbeat', seq: ++phase.sent })
    phase.beat = this.#deps.clock.after(phase.beatMs, () => this.#beat())
  }

  #take(message: FromEngine): void {
    const phase = this.#phase
    if (phase.name !== 'serving') return
    const { host } = this.#deps
    switch (message.t) {
      case 'heartbeat-ack':
        if (message.seq <= phase.sent) phase.acked = Math.max(phase.acked, message.seq)
        phase.beatMs = message.heartbeatMs
        return
      case 'desired':
        return host.desired(message.generation)
      case 'command':
        return host.command(message)
      case 'cancel':
        return host.cancel(message.id)
      case 'renew':
        return host.renewed(message.certificate)
      case 'open':
        return phase.pipes.open(message.ticket)
      case 'goodbye':
        if (!message.retry)
          return this.#end({ kind: 'fatal', reason: message.reason, message: message.message })
        return this.#lost(message.reason, message.message, message.spreadMs)
      default:
        unreachable(message)
    }
  }

  #lost(reason: string, message: string, spreadMs = 0): void {
    if (this.#phase.name !== 'serving') return
    const { since, framed } = this.#phase
    const upMs = this.#deps.clock.monotonic() - since
    const { transport } = framed.pipe
    this.#end({ kind: 'served', upMs, spreadMs, transport, reason, message })
  }

  #failed(error: unknown): void {
    const reason = (error instanceof AppError ? error.details.reason : undefined) ?? 'FAILED'
    this.#end({
      kind:
        error instanceof AppError && isFatal(error, this.#deps.host.pin()) ? 'fatal' : 'retryable',
      reason,
      message: messageOf(error),
    })
  }

  #end(outcome: Outcome): void {
    const phase = this.#phase
    if (phase.name === 'closing') return
    this.#phase = { name: 'closing' }
    if (phase.name === 'dialling') phase.abort.abort()
    else phase.framed.destroy()
    if (phase.name === 'serving') {
      phase.beat()
      phase.pipes.close()
    }
    this.#resolve(outcome)
  }
}

/**
 * Nothing changes until somebody acts: the engine is too new, or --server and the token are of different fleets. Once
 * the fleet's root key is known, a wrong one is an impostor, and must not be able to end an agent.
 */
const isFatal = (error: AppError, pin: RootPin): boolean =>
  (error.details.reason === 'VERSION' && error.code === 'INVALID') ||
  (error.details.reason === 'STATEMENT_WRONG_ROOT' && 'fingerprint' in pin)

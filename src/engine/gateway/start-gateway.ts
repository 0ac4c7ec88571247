// The accepting side of sessions: listens, admits nodes, holds their sessions in memory, and lends streams over them.
//
// Invariants
// 1. A node has one session here: the newest epoch. The older one is closed, and what it still says is dropped.
// 2. A session is in the map from its welcome to its end, and in the rows from REGISTER to its end being written.
// 3. Beats cost no query: `last_seen_at` is flushed in batches, and decides nothing.
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import type { Random } from '#lib/random.ts'
import {
  CERTIFICATE_MS,
  FLEET_MEDIUM,
  FLEET_SMALL,
  HEARTBEAT_MS,
  LAST_SEEN_FLUSH_MS,
  PIPE_IDLE_MS,
  TICKET_MS,
  UNREGISTERED_PER_ADDRESS_MAX,
} from '#core/node/limits.ts'
import { heartbeatMs } from '#core/node/node.ts'
import { unreachable } from '#lib/assert.ts'
import type { Framed } from '#protocol/framed.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import type { FromNode, Register } from '#protocol/messages.ts'
import type { Store } from '#store/connect.ts'
import { flushSeen, recordObserved } from '#store/sessions.ts'
import { askAgain, sendOpenCommands, takeResult } from '#engine/gateway/acceptance.ts'
import { refusal, type Refusal } from '#engine/gateway/admit.ts'
import type { Gateway, SessionInfo } from '#engine/gateway/gateway.ts'
import { Certificates } from '#engine/gateway/certificates.ts'
import type { GatewayKeys } from '#engine/gateway/gateway-keys.ts'
import { HealthyTime } from '#engine/gateway/healthy-time.ts'
import { listen, type Listening } from '#engine/gateway/listen.ts'
import { NodeSession, type SessionEnd } from '#engine/gateway/node-session.ts'
import { Openings } from '#engine/gateway/opening.ts'
import { Rarely } from '#engine/gateway/rarely.ts'
import { register } from '#engine/gateway/register.ts'
import { endFormerSelf, SessionEnds } from '#engine/gateway/session-ends.ts'
import { SessionTable } from '#engine/gateway/session-table.ts'
import { Tickets } from '#engine/gateway/tickets.ts'
import { Turns } from '#engine/gateway/turns.ts'

/** How often sessions are looked over; also the tick of healthy time. */
export const SWEEP_MS = 1_000
/** REGISTERs in the store at once: a fleet that reconnects leaves connections of the pool to everybody else. */
const REGISTERS_AT_ONCE = 8
/** A fleet is asked to come back at this rate after its engine stopped on purpose (ND-20). */
const RECONNECTS_PER_SECOND = 300
const SPREAD_MAX_MS = 3_000
/** A store that failed to take what a node said is tried again after this. */
const ASK_AGAIN_MS = 2_000
/** One event a node in this time says that somebody tries with its token. */
const MISMATCH_EVERY_MS = 60_000

export type GatewayConfig = {
  /** An address: '127.0.0.1', '0.0.0.0', '::'. */
  host: string
  /** The same number for UDP and TCP; 0 takes a free one. */
  port: number
  unregisteredPerAddress?: number
  beats?: { small: number; medium: number; large: number }
  certificateMs?: number
  pipeIdleMs?: number
  ticketMs?: number
  /** Stream ids of one data pipe; the multiplexer's own unless a test says less. */
  pipeIdsMax?: number
}

export type GatewayDeps = {
  engineId: string
  /** Of the engine's program. */
  version: string
  db: Store
  clock: Clock
  random: Random
  log: Logger
  keys: GatewayKeys
  config: GatewayConfig
}

/** Listens and serves. Rejects with UNAVAILABLE `LISTEN_FAILED` when the port cannot be had. */
export async function startGateway(deps: GatewayDeps): Promise<RunningGateway> {
  const gateway = new RunningGateway(deps)
  await gateway.start()
  return gateway
}

export class RunningGateway implements Gateway {
  readonly #deps: GatewayDeps
  readonly #sessions = new SessionTable()
  readonly #tickets: Tickets
  readonly #openings: Openings
  readonly #ends: SessionEnds
  readonly #mismatches: Rarely
  readonly #certificates: Certificates
  readonly #registers = new Turns(REGISTERS_AT_ONCE)
  readonly #seen: Loop
  readonly healthy: HealthyTime
  #listening: Listening | undefined
  #stopping = false

  constructor(deps: GatewayDeps) {
    this.#deps = deps
    const { clock, random, log, keys, config } = deps
    this.#tickets = new Tickets(clock, random)
    this.#certificates = new Certificates(keys, clock, config.certificateMs ?? CERTIFICATE_MS)
    this.#mismatches = new Rarely(clock, MISMATCH_EVERY_MS)
    this.healthy = new HealthyTime(clock, SWEEP_MS)
    this.#ends = new SessionEnds(deps)
    this.#openings = new Openings({
      clock,
      log,
      keys,
      perAddressMax: config.unregisteredPerAddress ?? UNREGISTERED_PER_ADDRESS_MAX,
      register: (message, framed) => this.#registers.run(() => this.#register(message, framed)),
      join: (message, framed) => {
        const take = this.#tickets.redeem(message, framed.peer)
        if (!take)
          return refusal(
            'TICKET_UNKNOWN',
            'the ticket is used, too old, or of another session',
            true,
          )
        framed.send({ t: 'joined' })
        take(framed.takeOver())
        return undefined
      },
    })
    this.#seen = new Loop(
      { name: 'last-seen', everyMs: LAST_SEEN_FLUSH_MS, pass: () => this.flushSeen() },
      deps,
    )
  }

  async start(): Promise<void> {
    const { clock, keys, config, log } = this.#deps
    await endFormerSelf(this.#deps, `${config.host}:${config.port}`)
    this.#listening = await listen({
      host: config.host,
      port: config.port,
      identity: keys.identity,
      clock,
      onPipe: (pipe) => this.#openings.serve(pipe),
      onRefused: (error) => log.debug({ err: error }, 'a connection ended before it opened'),
    })
    log.info(
      { host: config.host, port: this.port, quic: this.#listening.quic ?? 'on' },
      'nodes can dial in',
    )
    this.#ends.start()
    this.#seen.start()
  }

  /** Its own, for their status. */
  get loops(): readonly Loop[] {
    return [this.#ends.loop, this.#seen]
  }

  get port(): number {
    return this.#listening?.port ?? 0
  }

  session(nodeRecordId: string): SessionInfo | undefined {
    const session = this.#sessions.get(nodeRecordId)
    if (!session) return undefined
    const { orgId, epoch } = session.facts
    return { nodeRecordId, orgId, epoch, transport: session.transport }
  }

  sessions(): number {
    return this.#sessions.size
  }

  async openStream(
    nodeRecordId: string,
    header: Parameters<Gateway['openStream']>[1],
  ): ReturnType<Gateway['openStream']> {
    const session = this.#sessions.get(nodeRecordId)
    if (!session)
      throw new AppError('UNAVAILABLE', 'this engine holds no session of the node', {
        details: { reason: 'NODE_LOST' },
      })
    const stream = await session.openStream()
    try {
      await new FramedStream(stream).write(header)
    } catch (cause) {
      stream.destroy()
      if (cause instanceof AppError && cause.code === 'TOO_LARGE') throw cause
      throw new AppError('UNAVAILABLE', 'the session of the node ended', {
        cause,
        details: { reason: 'NODE_LOST' },
      })
    }
    return stream
  }

  endSession(nodeRecordId: string, why: { reason: string; message: string; retry: boolean }): void {
    this.#sessions
      .get(nodeRecordId)
      ?.close({ reason: 'ended', detail: why.message }, { ...why, spreadMs: 0 })
  }

  onChange(fn: (nodeRecordId: string) => void): () => void {
    return this.#sessions.onChange(fn)
  }

  /** Data pipes of the node's session. */
  dataPipes(nodeRecordId: string): number {
    return this.#sessions.get(nodeRecordId)?.dataPipes ?? 0
  }

  /** The beat that nodes are told now (D18). */
  get beatMs(): number {
    const sizes = { small: FLEET_SMALL, medium: FLEET_MEDIUM }
    return heartbeatMs(this.#sessions.size, this.#deps.config.beats ?? HEARTBEAT_MS, sizes)
  }

  /** Every SWEEP_MS, by the liveness loop: healthy time, silence, certificates, idle pipes. */
  sweep(silenceMs: number): void {
    this.healthy.tick()
    const limit = Math.max(silenceMs, 3 * this.beatMs)
    for (const session of this.#sessions.all()) {
      const silent = this.healthy.now() - session.heardAt
      if (silent > limit) {
        session.close({ reason: 'silence', detail: `nothing heard for ${Math.round(silent)} ms` })
        continue
      }
      session.sweep()
      if (this.#certificates.due(session))
        this.#background('a certificate was not renewed', this.#certificates.renew(session))
    }
  }

  /** Says goodbye to every node, writes what is known of them, and stops listening. */
  async stop(): Promise<void> {
    this.#stopping = true
    const spreadMs = Math.min(
      SPREAD_MAX_MS,
      Math.ceil((this.#sessions.size / RECONNECTS_PER_SECOND) * 1_000),
    )
    const closed = this.#sessions.all().map((session) => {
      session.close(
        { reason: 'engine-stopping', detail: 'the engine stopped' },
        { reason: 'ENGINE_STOPPING', message: 'the engine stops', spreadMs, retry: true },
      )
      return session.gone()
    })
    await Promise.all(closed)
    await this.#seen.stop()
    await this.#ends
      .stop()
      .catch((error) => this.#deps.log.warn({ err: error }, 'ends of sessions were not written'))
    await this.#listening?.close()
  }

  async #register(message: Register, framed: Framed): Promise<Refusal | undefined> {
    const { clock, keys, config, engineId } = this.#deps
    if (this.#stopping) return STOPPING
    const outcome = await register(
      { ...this.#deps, tellMismatch: ({ nodeRecordId }) => this.#mismatches.tell(nodeRecordId) },
      message,
      framed.pipe,
    )
    if (!outcome.ok) return outcome.refusal
    const { facts } = outcome
    const given = await this.#certificates.forWelcome(facts, framed.peer, outcome.held)
    if (this.#stopping) return STOPPING
    const session = new NodeSession(framed, facts, {
      clock,
      healthyNow: () => this.healthy.now(),
      tickets: this.#tickets,
      limits: {
        ticketMs: config.ticketMs ?? TICKET_MS,
        idleMs: config.pipeIdleMs ?? PIPE_IDLE_MS,
        ...(config.pipeIdsMax === undefined ? {} : { idsMax: config.pipeIdsMax }),
      },
      onMessage: (from, said) => this.#take(from, said),
      onEnd: (from, end) => this.#ended(from, end),
    })
    const older = this.#sessions.get(facts.nodeRecordId)
    if (older && older.facts.epoch > facts.epoch)
      return refusal('BUSY', 'a newer session of this node began meanwhile', true)
    this.#sessions.add(session)
    older?.close(
      { reason: 'replaced', detail: `epoch ${facts.epoch} began` },
      { reason: 'REPLACED', message: REPLACED, spreadMs: 0, retry: false },
    )
    session.renewAt = given.renewAt
    framed.send({
      t: 'welcome',
      epoch: facts.epoch,
      engineId,
      heartbeatMs: this.beatMs,
      certificate: given.certificate,
      fleetRoot: keys.fleetRoot,
      identityGeneration: facts.identityGeneration,
      node: { id: facts.nodeRecordId, orgId: facts.orgId, trustTier: facts.trustTier },
      desired: { generation: outcome.generation },
    })
    session.start()
    if (outcome.asked)
      this.#write(session, 'commands were not sent', sendOpenCommands(this.#acceptance, session))
    this.#sessions.changed(facts.nodeRecordId)
    return undefined
  }

  #take(session: NodeSession, message: FromNode): void {
    switch (message.t) {
      case 'heartbeat':
        return session.send({ t: 'heartbeat-ack', seq: message.seq, heartbeatMs: this.beatMs })
      case 'observed':
        return this.#write(
          session,
          'an observed generation was not written',
          this.#observed(session, message),
        )
      case 'command-result':
        return this.#write(
          session,
          'the result of a command was not written',
          takeResult(this.#acceptance, session, message),
        )
      case 'leaving':
        return this.#leave(session)
      default:
        unreachable(message)
    }
  }

  async #observed(session: NodeSession, { generation }: { generation: number }): Promise<void> {
    const { nodeRecordId, epoch } = session.facts
    const now = this.#deps.clock.now()
    if (await recordObserved(this.#deps.db, { nodeRecordId, epoch, generation, now }))
      this.#sessions.changed(nodeRecordId)
  }

  /** The node stops on purpose: it gets nothing new, and what runs there may end while the connection lasts. */
  #leave(session: NodeSession): void {
    session.left = true
    if (!this.#sessions.setAside(session)) return
    this.#ends.add(session, { reason: 'left', detail: 'the agent stops' })
    this.#sessions.changed(session.facts.nodeRecordId)
  }

  #ended(session: NodeSession, end: SessionEnd): void {
    if (this.#sessions.remove(session)) return
    this.#ends.add(session, end)
    this.#sessions.changed(session.facts.nodeRecordId)
  }

  /** A pass of the loop `last-seen`: writes the times, and drops sessions that are not the node's own any more. */
  async flushSeen(): Promise<Record<string, unknown>> {
    const seen = this.#sessions.live().map(({ facts, seenAt }) => ({ ...facts, at: seenAt }))
    const stale = await flushSeen(this.#deps.db, this.#deps.engineId, seen)
    for (const { nodeRecordId, epoch } of stale) {
      const session = this.#sessions.get(nodeRecordId)
      if (session?.facts.epoch !== epoch) continue
      const why = 'it was revoked, replaced, or is held by another engine'
      session.close(
        { reason: 'ended', detail: why },
        { reason: 'REPLACED', message: why, spreadMs: 0, retry: true },
      )
    }
    return { sessions: seen.length, stale: stale.length }
  }

  get #acceptance() {
    return {
      ...this.#deps,
      write: (session: NodeSession, what: string, work: Promise<unknown>) =>
        this.#write(session, what, work),
    }
  }

  /** Work of a session; what fails is asked for again while the session lasts. */
  #write(session: NodeSession, what: string, work: Promise<unknown>): void {
    const again = (): void => this.#write(session, what, askAgain(this.#acceptance, session))
    const guarded = work.catch((error) => {
      if (!session.ended) session.expect('ask-again', ASK_AGAIN_MS, again)
      throw error
    })
    this.#background(what, guarded)
  }

  #background(what: string, work: Promise<unknown>): void {
    work.catch((error) => {
      if (!this.#stopping) this.#deps.log.error({ err: error }, `${what}: ${messageOf(error)}`)
    })
  }
}

const STOPPING = refusal('BUSY', 'the engine stops', true)
const REPLACED =
  'another agent registered with the identity of this one: a data folder serves one machine'

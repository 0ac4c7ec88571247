// Pipe 1: one bidirectional QUIC stream of the quinn addon. The only file that knows the addon's (untyped) API.
//
// Invariants
// 1. One connection carries one stream, opened by the acceptor; a dialler cannot open any (limit 0). The addon hangs,
//    rather than fails, at its stream limit, so nothing here ever asks for a second one.
// 2. Who the peer is comes from the handshake (both sides prove an ed25519 key); an id that is none is cut.
// 3. A dial cannot be taken back but by closing its endpoint: until the idle timeout (15 s) the addon waits, and keeps
//    the process alive. So a cancelled dial closes an endpoint that nobody else uses; one that timed out does not.
import { lookup } from 'node:dns/promises'
import { createRequire } from 'node:module'
import { isIPv6 } from 'node:net'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { publicKeyOfPeerId, type Identity } from '#protocol/identity.ts'
import {
  Closing,
  GREETING,
  HANDSHAKE_MS,
  Inlet,
  LINGER_MS,
  LOST_RACE,
  awaitGreeting,
  hand,
  peerClosed,
  pipeLost,
  type DialOptions,
  type DialOutcome,
  type ListenOptions,
  type ListenOutcome,
  type Pipe,
} from '#protocol/pipe.ts'
import { QuicOutbox, type Outlet } from '#protocol/quic-outbox.ts'

type QuinnStream = Outlet & { read(max: number): Promise<Uint8Array | null> }
type QuinnConnection = {
  remoteMultiaddr(): string
  outboundStream(): Promise<QuinnStream>
  inboundStream(): Promise<QuinnStream>
  closed(): Promise<unknown>
  abort(): void
}
type QuinnServer = {
  inboundConnection(): Promise<QuinnConnection>
  port(): number
  abort(): unknown
}
type QuinnClient = {
  outboundConnection(host: string, port: number): Promise<QuinnConnection>
  abort(): unknown
}
type Quinn = {
  QuinnConfig: new (config: Record<string, unknown>) => object
  Server: new (config: object, host: string, port: number) => QuinnServer
  Client: new (config: object, family: number) => QuinnClient
}

const ADDON = '@chainsafe/libp2p-quic-linux-x64-gnu'
/**
 * A read asks for twice what the last one brought, between these: the addon allocates what is asked for. A control pipe
 * always waits in a read, and 1,000 of them with 16 KiB each cost 80 KB a session in all (measured).
 */
const READ_MIN = 1024
const READ_MAX = 128 * 1024
/** A dead peer is noticed by heartbeats; this is the last line. */
const IDLE_MS = 15_000
const KEEP_ALIVE_MS = 4_000
/** What a peer can make the other side hold: twice the multiplexer's window, once each for bytes and for overhead. */
const STREAM_WINDOW = 2 << 20
const SOCKET_BUFFER = 2 << 20
const FAMILY = { ipv4: 0, ipv6: 1 } as const

export type QuicAvailability = { available: true } | { available: false; reason: string }
type Loaded = { quinn: Quinn } | { reason: string }
let loaded: Loaded | undefined

function load(): Loaded {
  if (loaded) return loaded
  try {
    loaded = { quinn: createRequire(import.meta.url)(ADDON) as Quinn }
  } catch (error) {
    const what = `${process.platform}-${process.arch}`
    loaded = {
      reason: `QUIC needs the addon ${ADDON}, which does not load on this ${what} machine: ${firstLine(error)}`,
    }
  }
  return loaded
}

/** Whether this machine can do QUIC, and why not. Loads the addon on the first call. */
export function quicAvailability(): QuicAvailability {
  const found = load()
  return 'quinn' in found ? { available: true } : { available: false, reason: found.reason }
}

function config(quinn: Quinn, identity: Identity, streams: number): object {
  return new quinn.QuinnConfig({
    privateKeyProto: identity.libp2pKey,
    handshakeTimeout: HANDSHAKE_MS,
    maxIdleTimeout: IDLE_MS,
    keepAliveInterval: KEEP_ALIVE_MS,
    maxConcurrentStreamLimit: streams, // how many the peer may open towards us
    maxStreamData: STREAM_WINDOW,
    maxConnectionData: STREAM_WINDOW,
    receiveBufferSize: SOCKET_BUFFER,
    sendBufferSize: SOCKET_BUFFER,
  })
}

/** Listens for QUIC on UDP. Throws UNAVAILABLE when the address cannot be had. */
export function listenQuic(options: ListenOptions): ListenOutcome {
  const found = load()
  if (!('quinn' in found)) return { outcome: 'unavailable', reason: found.reason }
  const { host, port, identity, clock, onRefused } = options
  let server: QuinnServer
  try {
    server = new found.quinn.Server(config(found.quinn, identity, 0), host, port)
  } catch (cause) {
    throw new AppError('UNAVAILABLE', `cannot listen on UDP ${host}:${port}`, {
      cause,
      details: { reason: 'LISTEN_FAILED', next: 'free the port, or choose another' },
    })
  }
  let closing = false
  const take = async (connection: QuinnConnection): Promise<void> => {
    // A dialler that allows no stream would make the addon wait for ever.
    const stop = clock.after(HANDSHAKE_MS, () => connection.abort())
    try {
      const end = endOf(connection)
      if (!end) throw noKey()
      const stream = await connection.outboundStream()
      const pipe = wrap({ connection, stream, ...end, clock })
      pipe.write(GREETING)
      hand(pipe, options)
    } catch (error) {
      connection.abort()
      throw error
    } finally {
      stop()
    }
  }
  const loop = async (): Promise<void> => {
    while (!closing) {
      // A handshake that fails rejects here, and so does a closed server.
      const connection = await server.inboundConnection().catch(() => undefined)
      if (connection) take(connection).catch((error) => onRefused?.(refusal(error)))
      else if (!closing) await clock.sleep(5)
    }
  }
  loop().catch((error) => onRefused?.(refusal(error)))
  return {
    outcome: 'listening',
    listener: {
      transport: 'quic',
      port: server.port(),
      close: async () => {
        closing = true
        server.abort()
      },
    },
  }
}

/** Dials every address family that the name has, at once; the first to greet wins. */
export async function dialQuic(options: DialOptions): Promise<DialOutcome> {
  const found = load()
  if (!('quinn' in found)) return { outcome: 'unavailable', reason: found.reason }
  const over = new AbortController() // given up, or won by one of the attempts
  const { promise: given, reject } = Promise.withResolvers<never>()
  given.catch(() => {})
  const onAbort = (): void => reject(new Error('the dial was cancelled'))
  options.signal?.addEventListener('abort', onAbort, { once: true })
  if (options.signal?.aborted) onAbort()
  const stop = options.clock.after(options.timeoutMs, () =>
    reject(new Error(`no answer on UDP within ${Math.round(options.timeoutMs)} ms`)),
  )
  const attempts: Attempt[] = []
  let winner: Pipe | undefined
  try {
    const hosts = await Promise.race([resolve(options.host), given])
    for (const host of hosts) attempts.push(attempt(found.quinn, host, options, over.signal))
    const won = Promise.any(attempts.map((each) => each.pipe))
    winner = await Promise.race([won, given])
    return { outcome: 'connected', pipe: winner }
  } catch (error) {
    if (options.signal?.aborted && options.signal.reason !== LOST_RACE)
      for (const each of attempts) each.leave()
    const cause = error instanceof AggregateError ? error.errors[0] : error
    return { outcome: 'failed', reason: firstLine(cause) }
  } finally {
    over.abort()
    for (const each of attempts) each.pipe.then((pipe) => pipe === winner || pipe.destroy(), silent)
    stop()
    options.signal?.removeEventListener('abort', onAbort)
  }
}

/** One address a family, in the resolver's order. */
async function resolve(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true, order: 'verbatim' }).catch((error) => {
    throw new Error(`the name ${host} does not resolve: ${firstLine(error)}`)
  })
  const first = (family: number): string[] =>
    found
      .filter((each) => each.family === family)
      .slice(0, 1)
      .map(({ address }) => address)
  return [...first(4), ...first(6)]
}

type Attempt = {
  pipe: Promise<Pipe>
  /** Closes the endpoint if nobody else uses it: the only way to end a dial that the addon waits for. */
  leave(): void
}

function attempt(quinn: Quinn, host: string, options: DialOptions, over: AbortSignal): Attempt {
  const family = isIPv6(host) ? FAMILY.ipv6 : FAMILY.ipv4
  const endpoint = endpointOf(quinn, options.identity, family)
  endpoint.users++
  let using = true
  const release = (): void => {
    if (using) endpoint.users--
    using = false
  }
  const dialled = async (): Promise<Pipe> => {
    const connection = await endpoint.client.outboundConnection(host, options.port)
    const abandon = (): void => connection.abort()
    over.addEventListener('abort', abandon, { once: true })
    const end = endOf(connection)
    if (!end || over.aborted) {
      abandon()
      throw end ? new Error('the dial is over') : noKey()
    }
    const stream = await connection.inboundStream()
    const pipe = wrap({ connection, stream, ...end, clock: options.clock, release })
    const greeted = await awaitGreeting(pipe)
    over.removeEventListener('abort', abandon)
    return greeted
  }
  const pipe = dialled()
  pipe.catch(release)
  const leave = (): void => {
    if (endpoint.users > 1) return
    endpoints.get(options.identity)?.delete(family)
    endpoint.client.abort()
  }
  return { pipe, leave }
}

/**
 * One endpoint (a UDP socket) an identity and family for the life of the process: the addon frees an endpoint only when
 * the garbage collector comes by, and a node whose engine is away would leave one behind at every dial.
 */
type Endpoint = { client: QuinnClient; users: number }
const endpoints = new WeakMap<Identity, Map<number, Endpoint>>()

function endpointOf(quinn: Quinn, identity: Identity, family: number): Endpoint {
  const mine = endpoints.get(identity) ?? new Map<number, Endpoint>()
  endpoints.set(identity, mine)
  const endpoint = mine.get(family) ?? {
    client: new quinn.Client(config(quinn, identity, 1), family),
    users: 0,
  }
  mine.set(family, endpoint)
  return endpoint
}

type End = { peer: string; remote: { host: string; port: number } }

/** '/ip4/10.0.0.7/udp/443/quic-v1/p2p/12D3Koo…' */
function endOf(connection: QuinnConnection): End | undefined {
  const [, , host, , port, , , id] = connection.remoteMultiaddr().split('/')
  const peer = publicKeyOfPeerId(id ?? '')
  return peer === undefined ? undefined : { peer, remote: { host: host ?? '', port: Number(port) } }
}

type Wrapped = End & {
  connection: QuinnConnection
  stream: QuinnStream
  clock: Clock
  release?: () => void
}

function wrap({ connection, stream, peer, remote, clock, release }: Wrapped): Pipe {
  const closing = new Closing()
  let reading = false
  let onDrain = (): void => {}
  const finish = (error: AppError | undefined): void => {
    if (closing.closed) return
    outbox.stop()
    connection.abort()
    release?.()
    closing.close(error)
  }
  const lost = (error: unknown): void =>
    finish(outbox.ended ? undefined : pipeLost(firstLine(error)))
  const outbox = new QuicOutbox(stream, { drain: () => onDrain(), error: lost })
  const read = async (): Promise<void> => {
    reading = true
    let most = READ_MIN
    while (inlet.hungry && !closing.closed) {
      const chunk = await stream.read(most)
      if (chunk === null) return finish(outbox.ended ? undefined : peerClosed())
      most = Math.min(READ_MAX, Math.max(READ_MIN, 2 * chunk.length))
      inlet.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength))
    }
    reading = false
  }
  const inlet = new Inlet(() => {
    if (inlet.hungry && !reading && !closing.closed) read().catch(lost)
  })
  // A read in flight sees the end itself, after what arrived before it; without one this is the only sign.
  const ended = (): void => {
    if (!reading) finish(outbox.ended ? undefined : peerClosed())
  }
  read().catch(lost)
  connection.closed().then(ended, ended)
  return {
    transport: 'quic',
    copies: true,
    peer,
    remote,
    write: (bytes) => closing.closed || outbox.write(bytes),
    receive: (onData) => inlet.receive(onData),
    onDrain: (fn) => {
      onDrain = fn
    },
    onClose: (fn) => closing.onClose(fn),
    destroy: (error) => finish(error),
    close: () => {
      if (closing.closed || outbox.ended) return
      outbox.end()
      inlet.receive(() => {}) // what still comes is not wanted, its end is
      closing.onClose(clock.after(LINGER_MS, () => finish(undefined)))
    },
  }
}

const noKey = (): AppError =>
  new AppError('INVALID', 'the peer proved no ed25519 key', { details: { reason: 'PIPE_NO_KEY' } })

const silent = (): void => {}

const refusal = (error: unknown): AppError =>
  error instanceof AppError ? error : pipeLost(firstLine(error))

const firstLine = (error: unknown): string => messageOf(error).split('\n')[0] ?? ''

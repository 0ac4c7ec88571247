// Pipe 2: TLS 1.3 over TCP. The key in the certificate is the identity, on both sides; names, dates and authorities
// of the certificate are not asked here (the session layer verifies one that the fleet's authority issued).
import net from 'node:net'
import tls from 'node:tls'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { publicKeyOfCertificate } from '#protocol/identity.ts'
import {
  Closing,
  GREETING,
  HANDSHAKE_MS,
  Inlet,
  LINGER_MS,
  awaitGreeting,
  hand,
  peerClosed,
  pipeLost,
  type DialOptions,
  type DialOutcome,
  type ListenOptions,
  type Listener,
  type Pipe,
} from '#protocol/pipe.ts'

/** What a front that shares a TCP port looks for in a ClientHello. */
export const ALPN = 'clutch/1'
/** Sockets of one address in the middle of a handshake: each costs a signature. */
const HANDSHAKES_MAX_PER_ADDRESS = 64
const KEEP_ALIVE_MS = 15_000

/** Listens for TLS on TCP. Rejects UNAVAILABLE when the address cannot be had. */
export async function listenTls(options: ListenOptions): Promise<Listener> {
  const { identity, clock, onRefused } = options
  const server = tls.createServer({
    key: identity.privateKeyPem,
    cert: identity.certificatePem,
    minVersion: 'TLSv1.3',
    ALPNProtocols: [ALPN],
    requestCert: true,
    rejectUnauthorized: false, // the key is reported, not judged (see pipe.ts)
    handshakeTimeout: HANDSHAKE_MS,
    noDelay: true,
  })
  limitHandshakes(server)
  server.on('tlsClientError', (error) => onRefused?.(pipeLost(messageOf(error))))
  server.on('secureConnection', (socket) => {
    const pipe = wrap(socket, clock)
    if (pipe instanceof AppError) return onRefused?.(pipe)
    pipe.write(GREETING)
    hand(pipe, options)
  })
  await listening(server, options)
  const address = server.address()
  return {
    transport: 'tls',
    port: typeof address === 'object' && address ? address.port : options.port,
    close: async () => void server.close(),
  }
}

function listening(server: tls.Server, { host, port }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause) => {
      const details = { reason: 'LISTEN_FAILED', next: 'free the port, or choose another' }
      reject(
        new AppError('UNAVAILABLE', `cannot listen on TCP ${host}:${port}`, { cause, details }),
      )
    })
    server.listen(port, host, resolve)
  })
}

/** Counts by address the sockets between their TCP handshake and the end of the TLS one. */
function limitHandshakes(server: tls.Server): void {
  const shaking = new Map<string, Set<number>>() // address → ports
  const settle = (address: string, port: number): void => {
    const ports = shaking.get(address)
    ports?.delete(port)
    if (ports?.size === 0) shaking.delete(address)
  }
  server.on('connection', (socket: net.Socket) => {
    const { remoteAddress: address = '', remotePort: port = 0 } = socket
    const ports = shaking.get(address) ?? new Set()
    shaking.set(address, ports.add(port))
    socket.once('close', () => settle(address, port)) // a closed socket forgets its address
    if (ports.size > HANDSHAKES_MAX_PER_ADDRESS) socket.destroy()
  })
  server.on('secureConnection', (socket) =>
    settle(socket.remoteAddress ?? '', socket.remotePort ?? 0),
  )
}

/** Dials TLS; Node tries the addresses of the name in turn (RFC 8305). */
export function dialTls(options: DialOptions): Promise<DialOutcome> {
  const { host, port, identity, clock, timeoutMs, signal } = options
  return new Promise((resolve) => {
    const socket = tls.connect({
      host,
      port,
      key: identity.privateKeyPem,
      cert: options.certificatePem ?? identity.certificatePem,
      minVersion: 'TLSv1.3',
      ALPNProtocols: [ALPN],
      rejectUnauthorized: false,
      checkServerIdentity: () => undefined,
      ...(net.isIP(host) === 0 ? { servername: host } : {}),
    })
    let settled = false
    const settle = (outcome: DialOutcome): void => {
      if (settled) return
      settled = true
      stop()
      signal?.removeEventListener('abort', onAbort)
      resolve(outcome)
    }
    const fail = (reason: string): void => {
      settle({ outcome: 'failed', reason })
      socket.destroy()
    }
    const onAbort = (): void => fail('the dial was cancelled')
    const stop = clock.after(timeoutMs, () => fail(`no answer on TCP within ${timeoutMs} ms`))
    signal?.addEventListener('abort', onAbort, { once: true })
    if (signal?.aborted) onAbort()
    socket.on('error', (error) => fail(firstLine(error)))
    socket.once('secureConnect', () => {
      const pipe = wrap(socket, clock)
      if (pipe instanceof AppError) return fail(pipe.message)
      awaitGreeting(pipe).then(
        (greeted) => {
          if (settled) greeted.destroy()
          settle({ outcome: 'connected', pipe: greeted })
        },
        (error) => fail(firstLine(error)),
      )
    })
  })
}

/** A secured socket as a pipe; a refusal (the socket is destroyed) when it is no peer of ours. */
function wrap(socket: tls.TLSSocket, clock: Clock): Pipe | AppError {
  const closing = new Closing()
  let failure: AppError | undefined
  let ending = false
  socket.on('error', (error) => {
    failure ??= pipeLost(firstLine(error))
  })
  const certificate = socket.getPeerX509Certificate()
  const peer = publicKeyOfCertificate(certificate)
  if (socket.alpnProtocol !== ALPN || peer === undefined || certificate === undefined) {
    socket.destroy()
    return refusal(socket, peer)
  }
  socket.setNoDelay(true)
  socket.setKeepAlive(true, KEEP_ALIVE_MS)
  const flow = (): unknown => (inlet.hungry ? socket.resume() : socket.pause())
  const inlet = new Inlet(flow)
  const remote = { host: socket.remoteAddress ?? '', port: socket.remotePort ?? 0 }
  let onDrain = (): void => {}
  socket.on('data', (chunk: Buffer) => {
    inlet.push(chunk)
    flow()
  })
  socket.on('drain', () => onDrain())
  socket.on('end', () => {
    if (!ending) failure ??= peerClosed()
    socket.destroy()
  })
  socket.on('close', () => closing.close(failure))
  return {
    transport: 'tls',
    copies: false,
    peer,
    remote,
    certificate: certificate.raw,
    write: (bytes) => socket.destroyed || ending || socket.write(bytes),
    receive: (onData) => inlet.receive(onData),
    onDrain: (fn) => {
      onDrain = fn
    },
    onClose: (fn) => closing.onClose(fn),
    destroy: (error) => {
      if (closing.closed) return
      socket.destroy()
      closing.close(error)
    },
    close: () => {
      if (ending || closing.closed) return
      ending = true
      inlet.receive(() => {}) // what still comes is not wanted, its end is
      socket.end()
      closing.onClose(clock.after(LINGER_MS, () => socket.destroy()))
    },
  }
}

function refusal(socket: tls.TLSSocket, peer: string | undefined): AppError {
  if (socket.alpnProtocol === ALPN && peer === undefined)
    return new AppError('INVALID', 'the peer showed no ed25519 certificate', {
      details: { reason: 'PIPE_NO_KEY' },
    })
  const spoke = socket.alpnProtocol === false ? 'nothing' : socket.alpnProtocol
  return new AppError('INVALID', `the peer speaks ${spoke}, not ${ALPN}`, {
    details: { reason: 'PIPE_NOT_CLUTCH', next: 'check the host and the port' },
  })
}

const firstLine = (error: unknown): string => messageOf(error).split('\n')[0] ?? ''

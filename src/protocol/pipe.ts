// A pipe is an ordered, authenticated, encrypted byte stream to one peer. Nothing above it knows a transport.
//
// Invariants
// 1. A pipe reports who is at the far end; it never judges. The session layer asks for a signed statement.
// 2. The acceptor speaks first: a dial is "connected" only when the acceptor's greeting arrived, because a TLS 1.3
//    client believes itself connected before the server looked at its key, and a QUIC stream is invisible until used.
// 3. While nobody listens (`receive` unset) at most one chunk is read ahead: what waits is bounded by the transport.
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Identity } from '#protocol/identity.ts'

export type Transport = 'quic' | 'tls'
export type Address = { host: string; port: number }

export type Pipe = {
  readonly transport: Transport
  /** The 32 raw bytes of the peer's ed25519 public key, in hex: proven by the handshake, not yet judged. */
  readonly peer: string
  readonly remote: Address
  /** The certificate the peer showed (DER). TLS only: on QUIC certificates travel in messages. */
  readonly certificate?: Uint8Array
  /** True when `write` has copied as it returns, so that the caller may use the memory again. */
  readonly copies: boolean
  /** Takes the bytes (unless `copies`, the caller does not touch them again). False: wait for `onDrain` before sending more bulk. */
  write(bytes: Uint8Array): boolean
  /** One reader at a time, replacing the last; without one the pipe stops reading. Never called inside `receive`. */
  receive(onData: ((chunk: Buffer) => void) | undefined): void
  /** One listener at a time, replacing the last. */
  onDrain(fn: () => void): void
  /** Called once, at once when already closed; with an error unless this side closed it without one. */
  onClose(fn: (error: AppError | undefined) => void): void
  /** Ends at once: what was written and has not left is dropped. */
  destroy(error?: AppError): void
  /** Ends after everything written has arrived, or after LINGER_MS. */
  close(): void
}

/** `unavailable`: this machine cannot do the transport at all. `failed`: it was tried. Reasons are for people. */
export type DialOutcome =
  | { outcome: 'connected'; pipe: Pipe }
  | { outcome: 'unavailable'; reason: string }
  | { outcome: 'failed'; reason: string }

export type DialOptions = {
  /** A name or an address; names are resolved here. */
  host: string
  port: number
  identity: Identity
  clock: Clock
  /** The whole of it: resolving, handshake, greeting. */
  timeoutMs: number
  signal?: AbortSignal
  /** A certificate (PEM) of the fleet's authority for the identity's key, shown instead of the self-signed one (TLS). */
  certificatePem?: string
}

export type ListenOptions = {
  /** An address, not a name: `0.0.0.0`, `::`, `127.0.0.1`. */
  host: string
  /** 0 picks a free one. */
  port: number
  identity: Identity
  clock: Clock
  /** A promise that rejects destroys the pipe and is told to `onRefused`. */
  onPipe: (pipe: Pipe) => void | Promise<void>
  /** A connection that never became a pipe, or whose `onPipe` failed. */
  onRefused?: (error: AppError) => void
}

export type Listener = {
  readonly transport: Transport
  readonly port: number
  /** Stops accepting. QUIC pipes share the listener's socket and end with it; TLS pipes live on. */
  close(): Promise<void>
}

export type ListenOutcome =
  | { outcome: 'listening'; listener: Listener }
  | { outcome: 'unavailable'; reason: string }

/** First bytes of every connection, acceptor to dialler; also the version of what follows. */
export const GREETING = Buffer.from('clutch/1\n')
/** A handshake that takes longer is dropped: an unproven peer holds a socket no longer than this. */
export const HANDSHAKE_MS = 5_000
/** The reason of a dial's signal when another transport was faster; any other reason means that the caller is done. */
export const LOST_RACE = 'another transport answered first'
/** How long `close` waits for the peer to take what was written. */
export const LINGER_MS = 2_000

export const peerClosed = (): AppError =>
  new AppError('UNAVAILABLE', 'the peer closed the connection', {
    details: { reason: 'PIPE_CLOSED_BY_PEER' },
  })

export const pipeLost = (why: string): AppError =>
  new AppError('UNAVAILABLE', `the connection was lost: ${why}`, {
    details: { reason: 'PIPE_LOST' },
  })

/** What arrives goes to the reader of the moment; while there is none the source is told to stop. */
export class Inlet {
  readonly #onWanted: (wanted: boolean) => void
  #handler: ((chunk: Buffer) => void) | undefined
  #held: Buffer[] = []
  #draining = false

  constructor(onWanted: (wanted: boolean) => void) {
    this.#onWanted = onWanted
  }

  /** True while one more chunk may come: somebody reads, or nothing is held. */
  get hungry(): boolean {
    return this.#handler !== undefined || this.#held.length === 0
  }

  push(chunk: Buffer): void {
    if (this.#handler && this.#held.length === 0) this.#handler(chunk)
    else this.#held.push(chunk)
  }

  receive(handler: ((chunk: Buffer) => void) | undefined): void {
    const was = this.#handler !== undefined
    this.#handler = handler
    if (handler && this.#held.length > 0 && !this.#draining) {
      this.#draining = true
      queueMicrotask(() => this.#drain())
    }
    if (was !== (handler !== undefined)) this.#onWanted(handler !== undefined)
  }

  #drain(): void {
    this.#draining = false
    while (this.#handler) {
      const chunk = this.#held.shift()
      if (!chunk) return
      this.#handler(chunk)
    }
  }
}

/** Reads the acceptor's greeting off a fresh pipe and leaves what follows it; the error says what came instead. */
export function awaitGreeting(pipe: Pipe): Promise<Pipe> {
  return new Promise((resolve, reject) => {
    let held = Buffer.alloc(0)
    let settled = false
    pipe.onClose((error) => {
      if (!settled) reject(error ?? peerClosed())
    })
    pipe.receive((chunk) => {
      held = Buffer.concat([held, chunk])
      if (!GREETING.subarray(0, held.length).equals(held.subarray(0, GREETING.length))) {
        const error = new AppError('INVALID', 'the peer does not speak clutch/1', {
          details: { reason: 'PIPE_NOT_CLUTCH', next: 'check the host and the port' },
        })
        pipe.destroy(error)
        return reject(error)
      }
      if (held.length < GREETING.length) return
      settled = true
      pipe.receive(undefined)
      resolve(withLeftover(pipe, held.subarray(GREETING.length)))
    })
  })
}

/** The same pipe, whose next reader is given `leftover` first. */
export function withLeftover(pipe: Pipe, leftover: Uint8Array): Pipe {
  if (leftover.length === 0) return pipe
  const inlet = new Inlet((wanted) =>
    pipe.receive(wanted ? (chunk) => inlet.push(chunk) : undefined),
  )
  inlet.push(Buffer.from(leftover))
  return { ...pipe, receive: (onData) => inlet.receive(onData) }
}

/** Runs `onPipe` so that neither a throw nor a rejection escapes. */
export function hand(pipe: Pipe, { onPipe, onRefused }: ListenOptions): void {
  const fail = (cause: unknown): void => {
    const error =
      cause instanceof AppError
        ? cause
        : new AppError('INTERNAL', 'the connection could not be served', { cause })
    pipe.destroy(error)
    onRefused?.(error)
  }
  try {
    Promise.resolve(onPipe(pipe)).catch(fail)
  } catch (error) {
    fail(error)
  }
}

/** One list of closers with what every pipe needs of it: called once, late listeners called at once. */
export class Closing {
  #closers: ((error: AppError | undefined) => void)[] = []
  #closed = false
  #error: AppError | undefined

  get closed(): boolean {
    return this.#closed
  }

  onClose(fn: (error: AppError | undefined) => void): void {
    if (this.#closed) fn(this.#error)
    else this.#closers.push(fn)
  }

  /** False when it was closed already. */
  close(error: AppError | undefined): boolean {
    if (this.#closed) return false
    this.#closed = true
    this.#error = error
    for (const fn of this.#closers.splice(0)) fn(error)
    return true
  }
}

// The dial of a session: QUIC first, TCP beside it when QUIC is slow. The first to be greeted wins.
//
// A dead UDP port says nothing for 15 s, so TCP does not wait for QUIC to fail; where QUIC cannot run or has failed
// already, TCP starts at once.
import { DIAL_TIMEOUT_MS } from '#core/node/limits.ts'
import type { Clock } from '#lib/clock.ts'
import type { Identity } from '#protocol/identity.ts'
import { LOST_RACE, type DialOptions, type Pipe, type Transport } from '#protocol/pipe.ts'
import { dialQuic } from '#protocol/quic-pipe.ts'
import { dialTls } from '#protocol/tls-pipe.ts'

/** Head start of QUIC: a handshake over a bad mobile link takes about a second. */
export const TCP_AFTER_MS = 1_500

export type DialRequest = {
  host: string
  /** The same number for UDP and TCP unless `tcpPort` says otherwise. */
  port: number
  tcpPort?: number
  identity: Identity
  clock: Clock
  signal?: AbortSignal
  certificatePem?: string
  timeoutMs?: number
  /** Which to try, in this order of preference. Both unless given. */
  transports?: readonly Transport[]
}

/** Why a transport was not used, for logs and for the person at the node: 'no answer on UDP within 1500 ms'. */
export type Attempt = { transport: Transport; reason: string }

export type Dialled =
  | { outcome: 'connected'; pipe: Pipe; transport: Transport; others: Attempt[] }
  | { outcome: 'failed'; attempts: Attempt[]; message: string }

const DIALS = { quic: dialQuic, tls: dialTls }

/** Never rejects. `others` says why the preferred transport was not the one. */
export async function dial(request: DialRequest): Promise<Dialled> {
  const { clock, timeoutMs = DIAL_TIMEOUT_MS } = request
  const [first = 'quic', second] = request.transports ?? (['quic', 'tls'] as const)
  const began = clock.monotonic()
  const spent = (): number => clock.monotonic() - began
  const over = new AbortController() // somebody won
  const signal = request.signal ? AbortSignal.any([request.signal, over.signal]) : over.signal
  const failed: Attempt[] = []
  const running = new Set<Transport>()
  let winner: { pipe: Pipe; transport: Transport } | undefined
  const attempt = async (transport: Transport): Promise<void> => {
    running.add(transport)
    const outcome = await DIALS[transport](
      optionsOf(request, transport, timeoutMs - spent(), signal),
    )
    if (outcome.outcome === 'connected') {
      if (winner) return outcome.pipe.destroy()
      winner = { pipe: outcome.pipe, transport }
      running.delete(transport)
      return over.abort(LOST_RACE)
    }
    if (winner) return
    running.delete(transport)
    failed.push({ transport, reason: outcome.reason })
  }
  const won = new Promise<void>((resolve) =>
    over.signal.addEventListener('abort', () => resolve(), { once: true }),
  )
  const attempts = [attempt(first)]
  if (second !== undefined) {
    await Promise.race([attempts[0], clock.sleep(TCP_AFTER_MS, signal).catch(() => {})])
    if (!winner && !request.signal?.aborted) attempts.push(attempt(second))
  }
  await Promise.race([won, Promise.all(attempts)])
  if (!winner) return { outcome: 'failed', attempts: failed, message: describe(request, failed) }
  const waited = Math.round(spent())
  for (const transport of running)
    failed.push({ transport, reason: `no answer within ${waited} ms, when the other answered` })
  return { outcome: 'connected', ...winner, others: failed }
}

function optionsOf(
  request: DialRequest,
  transport: Transport,
  timeoutMs: number,
  signal: AbortSignal,
): DialOptions {
  const { host, port, tcpPort = port, identity, clock, certificatePem } = request
  return {
    host,
    port: transport === 'tls' ? tcpPort : port,
    identity,
    clock,
    timeoutMs,
    signal,
    ...(certificatePem === undefined ? {} : { certificatePem }),
  }
}

const NAMES = { quic: 'QUIC', tls: 'TCP' }

function describe({ host, port }: DialRequest, attempts: Attempt[]): string {
  const why = attempts.map(({ transport, reason }) => `${NAMES[transport]}: ${reason}`).join('; ')
  return `cannot reach ${host}:${port}${why ? ` (${why})` : ''}`
}

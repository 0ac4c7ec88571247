// The server's own limits, and its end: no new connection, what is in flight ends, by a deadline.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'

/** Request line and headers; a session cookie is 200 bytes. */
const HEADERS_MAX = 16 * 1024
const HEADER_COUNT_MAX = 100
/** A head that takes longer is an attack (slowloris). */
const HEADERS_TIMEOUT_MS = 10_000
/** How long a body may take: 12 MiB over a line of 1 Mbit/s. */
const BODY_TIMEOUT_MS = 120_000
/** Longer than what a proxy in front keeps a connection for, so that it is never the one to be surprised. */
const KEEP_ALIVE_MS = 75_000
const CONNECTIONS_MAX = 10_000

/** `patient` lifts the time by which the body must have come: whoever calls it watches the body itself. */
export type Listener = (req: IncomingMessage, res: ServerResponse, patient: () => void) => void

export type HttpServer = {
  /** `http://127.0.0.1:7070`, by the address listened on. */
  url: string
  port: number
  /** True from the moment the end began. */
  stopping(): boolean
  /** Requests before this wait for an answer of 503. */
  serve(listener: Listener): void
  /** Stops taking connections; resolves when what is in flight has ended or `deadlineMs` is over. */
  stop(deadlineMs: number): Promise<void>
}

/** Listens; rejects with INVALID_STATE `HTTP_PORT` when the port cannot be had. */
export async function listenHttp(
  at: { host: string; port: number },
  clock: Clock,
): Promise<HttpServer> {
  let listener: Listener = (_req, res) => void res.writeHead(503).end()
  let stopping = false
  const active = new Set<ServerResponse>()
  const take = (req: IncomingMessage, res: ServerResponse): void => {
    // A client that is told keeps no connection to an engine that ends.
    if (stopping) res.setHeader('connection', 'close')
    active.add(res)
    res.once('close', () => active.delete(res))
    listener(req, res, bodyDeadline(req, res, clock))
  }
  const server = createServer(
    {
      maxHeaderSize: HEADERS_MAX,
      headersTimeout: HEADERS_TIMEOUT_MS,
      // A body that streams takes as long as it takes: each request has its own time (`bodyDeadline`).
      requestTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: HEADERS_TIMEOUT_MS / 2,
    },
    (req, res) => take(req, res),
  )
  server.on('checkContinue', (req, res) => {
    // A client that asks first hears a refusal before it sends; otherwise when somebody begins to read.
    req.once('resume', () => void (res.headersSent || res.writeContinue()))
    take(req, res)
  })
  server.maxHeadersCount = HEADER_COUNT_MAX
  server.maxConnections = CONNECTIONS_MAX
  const port = await listening(server, at)
  const host = at.host.includes(':') ? `[${at.host}]` : at.host
  return {
    url: `http://${host === '0.0.0.0' || host === '[::]' ? '127.0.0.1' : host}:${port}`,
    port,
    stopping: () => stopping,
    serve: (next) => void (listener = next),
    async stop(deadlineMs) {
      stopping = true
      for (const res of active) if (!res.headersSent) res.setHeader('connection', 'close')
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      server.closeIdleConnections()
      const cancel = clock.after(deadlineMs, () => server.closeAllConnections())
      await closed
      cancel()
    },
  }
}

/** Ends a request whose body has not come in time; answers the way to lift that. */
function bodyDeadline(req: IncomingMessage, res: ServerResponse, clock: Clock): () => void {
  const { headers } = req
  if (headers['transfer-encoding'] === undefined && !Number(headers['content-length'] ?? 0))
    return () => undefined
  const cancel = clock.after(BODY_TIMEOUT_MS, () => {
    if (req.complete) return
    if (!res.headersSent) res.writeHead(408, { connection: 'close' }).end()
    req.socket.destroySoon()
  })
  req.once('close', cancel)
  return cancel
}

async function listening(
  server: Server,
  { host, port }: { host: string; port: number },
): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => resolve())
  }).catch((error: unknown) => {
    throw new AppError('INVALID_STATE', `The API cannot listen on ${host}:${port}`, {
      cause: error,
      details: {
        reason: 'HTTP_PORT',
        next: 'Stop what listens there, or choose another port with --http-port',
      },
    })
  })
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : port
}

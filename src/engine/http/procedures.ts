// oRPC's handlers on node:http: our own few lines between the two, because procedures take and give JSON and nothing
// else. The body is parsed once, by body.ts; an answer leaves in one piece, with its length.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { HttpContext } from '#engine/kernel.ts'
import { sha256Hex } from '#lib/bytes.ts'

type Headers = Record<string, string | string[] | undefined>
type Asked = {
  method: string
  url: URL
  headers: Headers
  body: () => Promise<unknown>
  signal: AbortSignal
}
type Answer = { status: number; headers: Headers; body: unknown }

/** What is used of oRPC's `StandardHandler`. */
export type Handler = {
  handle(
    asked: Asked,
    options: { context: HttpContext; prefix?: `/${string}` },
  ): Promise<{ matched: false } | { matched: true; response: Answer }>
}

export type Called = {
  req: IncomingMessage
  res: ServerResponse
  /** Parsed already; undefined for none. */
  body: unknown
}

/** False when no procedure has this path; then nothing was answered. */
export async function callProcedure(
  handler: Handler,
  { req, res, body }: Called,
  options: { context: HttpContext; prefix?: `/${string}`; tagged: boolean },
): Promise<boolean> {
  const { tagged, ...rest } = options
  const method = req.method ?? 'GET'
  const asked: Asked = {
    method,
    // Only path and query are looked at.
    url: new URL(`http://localhost${req.url ?? '/'}`),
    headers: req.headers,
    body: () => Promise.resolve(body),
    signal: signalOf(res),
  }
  const handled = await handler.handle(asked, rest)
  if (!handled.matched) return false
  send(res, handled.response, tagged && method === 'GET')
  return true
}

/** Aborted when the client goes away before it has its answer. */
function signalOf(res: ServerResponse): AbortSignal {
  const gone = new AbortController()
  const onClose = (): void => {
    if (!res.writableFinished) gone.abort()
  }
  if (res.closed) onClose()
  else res.once('close', onClose)
  return gone.signal
}

function send(res: ServerResponse, { status, headers, body }: Answer, tagged: boolean): void {
  if (body === undefined) return void res.writeHead(status, headers).end()
  const text = JSON.stringify(body)
  const own: Headers = { ...headers, 'content-type': 'application/json' }
  // ND-30: an unchanged read is a 304. The tag is of the answer's bytes, so it is never wrong.
  if (tagged && status === 200) {
    const tag = `"${sha256Hex(text).slice(0, 32)}"`
    const seen = { ...headers, etag: tag, 'cache-control': 'private, no-cache' }
    if (knows(res.req, tag)) return void res.writeHead(304, seen).end()
    Object.assign(own, seen)
  }
  own['content-length'] = String(Buffer.byteLength(text))
  res.writeHead(status, own).end(text)
}

const knows = (req: IncomingMessage, tag: string): boolean =>
  String(req.headers['if-none-match'] ?? '')
    .split(',')
    .some((one) => one.trim().replace(/^W\//, '') === tag)

// `fetch` over node:http. The built-in one gives up after 300 s without an answer; an invocation may take 900 s (D44).
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { Readable } from 'node:stream'

/** The request never reached a server: repeating it is always safe. */
export class NotConnected extends Error {
  readonly reason: string
  constructor(reason: string, cause: unknown) {
    super(reason, { cause })
    this.reason = reason
  }
}

/** The connection broke after the request was sent: the server may have acted on it. */
export class ConnectionLost extends Error {}

/** Follows no redirect. Rejects with NotConnected or ConnectionLost, or the signal's reason. */
export async function httpFetch(request: Request): Promise<Response> {
  const url = new URL(request.url)
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer())
  const headers: Record<string, string> = Object.fromEntries(request.headers)
  if (body !== undefined) headers['content-length'] = String(body.length)
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    let connected = false
    const call = send(url, { method: request.method, headers, signal: request.signal })
    call.on('socket', (socket) => {
      if (socket.connecting)
        socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
          connected = true
        })
      else connected = true
    })
    call.on('response', (answer) => {
      const status = answer.statusCode ?? 0
      const bodyless = status === 204 || status === 304
      const pairs = Object.entries(answer.headers).flatMap(([name, value]) =>
        [value ?? []].flat().map((one): [string, string] => [name, one]),
      )
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- Node's and the DOM's stream types differ in name only
      const stream = bodyless ? null : (Readable.toWeb(answer) as unknown as ReadableStream)
      resolve(new Response(stream, { status, headers: pairs }))
    })
    call.on('error', (error: NodeJS.ErrnoException) => {
      if (request.signal.aborted) reject(request.signal.reason)
      else if (connected) reject(new ConnectionLost(error.message, { cause: error }))
      else reject(new NotConnected(error.code ?? error.message, error))
    })
    call.end(body)
  })
}

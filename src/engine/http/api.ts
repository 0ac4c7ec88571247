// The procedures on the wire: RPC under /rpc for our own programs, REST under /v1 for everybody, from one contract.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { OpenAPIHandler } from '@orpc/openapi/node'
import { RPCHandler } from '@orpc/server/node'
import { resolveCaller } from '#engine/caller.ts'
import { BodyRoom } from '#engine/http/body-room.ts'
import { BODY_MAX, DEPLOY_BODY_MAX, INVOKE_BODY_MAX, jsonOf, readBody } from '#engine/http/body.ts'
import type { HttpContext } from '#engine/kernel.ts'
import { isGone, toContractError } from '#engine/kernel-errors.ts'
import { router } from '#engine/procedures/router.ts'
import { sha256Hex } from '#lib/bytes.ts'

export type Api = {
  /** False when no procedure has this path. The request's body is read here. */
  serve(
    exchange: { req: IncomingMessage; res: ServerResponse; path: string; query: string },
    context: HttpContext,
  ): Promise<boolean>
}

type WithBody = IncomingMessage & { body?: unknown }

export function createApi(): Api {
  const rpc = new RPCHandler<HttpContext>(router, { interceptors: [told] })
  const rest = new OpenAPIHandler<HttpContext>(router, {
    interceptors: [told],
    rootInterceptors: [etagged],
  })
  const room = new BodyRoom()
  return {
    async serve({ req, res, path, query }, context) {
      const isRpc = path.startsWith('/rpc/')
      if (req.method !== 'GET' && req.method !== 'HEAD') {
        const max = limitOf(path)
        if (max > BODY_MAX) await takeRoom(room, { req, res, max }, context)
        const bytes = await readBody(req, max)
        const body = jsonOf(bytes, req.headers['content-type'])
        // oRPC takes a body that is parsed already.
        ;(req as WithBody).body = isRpc ? (body ?? {}) : withQuery(body, query)
      }
      const handled = isRpc
        ? await rpc.handle(req, res, { prefix: '/rpc', context })
        : await rest.handle(req, res, { context })
      return handled.matched
    },
  }
}

function limitOf(path: string): number {
  if (path === '/v1/functions' || path === '/rpc/compute/functions/deploy') return DEPLOY_BODY_MAX
  if (/^\/v1\/functions\/[^/]+\/invoke$/.test(path) || path === '/rpc/compute/functions/invoke')
    return INVOKE_BODY_MAX
  return BODY_MAX
}

/** A small body needs no room, and its caller is asked for with the call. */
async function takeRoom(
  room: BodyRoom,
  { req, res, max }: { req: IncomingMessage; res: ServerResponse; max: number },
  { engine, headers }: HttpContext,
): Promise<void> {
  const declared = req.headers['content-length']
  const bytes = declared === undefined ? max : Math.min(Number(declared), max)
  if (bytes <= BODY_MAX) return
  const { kind, id } = await resolveCaller(engine, headers)
  const giveBack = await room.take(`${kind} ${id}`, bytes, engine.clock)
  if (res.closed) giveBack()
  else res.once('close', giveBack)
}

/** D51: orgId stands in the query or in the body, of writes too; the body wins. */
function withQuery(body: unknown, query: string): unknown {
  if (body !== undefined && (typeof body !== 'object' || body === null || Array.isArray(body)))
    return body
  return { ...Object.fromEntries(new URLSearchParams(query)), ...body }
}

type Interceptor<T> = {
  request: { signal: AbortSignal | undefined }
  context: HttpContext
  next: () => Promise<T>
}

/** Errors of the wire itself, before any procedure: told as the contract's. */
async function told<T>({ request, context, next }: Interceptor<T>): Promise<T> {
  try {
    return await next()
  } catch (error) {
    if (isGone(error, request.signal)) throw error
    const { engine, requestId } = context
    throw toContractError(error, { log: engine.log, requestId })
  }
}

type Answer = {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: unknown
}
type Result = { matched: boolean; response?: Answer | undefined }
type Etagged<T> = {
  request: { method: string; headers: Record<string, string | string[] | undefined> }
  next: () => Promise<T>
}

/** ND-30: an unchanged read is a 304. The tag is of the answer's bytes, so it is never wrong. */
async function etagged<T extends Result>({ request, next }: Etagged<T>): Promise<T> {
  const result = await next()
  const { response } = result
  if (request.method !== 'GET' || response?.status !== 200) return result
  if (typeof response.body !== 'object' || response.body === null) return result
  const tag = `"${sha256Hex(JSON.stringify(response.body)).slice(0, 32)}"`
  const headers = { ...response.headers, etag: tag, 'cache-control': 'private, no-cache' }
  const known = String(request.headers['if-none-match'] ?? '')
    .split(',')
    .map((one) => one.trim().replace(/^W\//, ''))
  if (known.includes(tag)) return { ...result, response: { status: 304, headers, body: undefined } }
  return { ...result, response: { ...response, headers } }
}

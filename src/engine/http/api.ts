// The procedures on the wire: RPC under /rpc for our own programs, REST under /v1 for everybody, from one contract.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { StandardOpenAPIHandler } from '@orpc/openapi/standard'
import { StrictGetMethodPlugin } from '@orpc/server/plugins'
import { StandardRPCHandler } from '@orpc/server/standard'
import { resolveCaller } from '#engine/caller.ts'
import { BodyRoom } from '#engine/http/body-room.ts'
import { BODY_MAX, DEPLOY_BODY_MAX, INVOKE_BODY_MAX, jsonOf, readBody } from '#engine/http/body.ts'
import { callProcedure } from '#engine/http/procedures.ts'
import type { HttpContext } from '#engine/kernel.ts'
import { isGone, toContractError } from '#engine/kernel-errors.ts'
import { router } from '#engine/procedures/router.ts'

export type Api = {
  /** False when no procedure has this path. The request's body is read here. */
  serve(
    exchange: { req: IncomingMessage; res: ServerResponse; path: string; query: string },
    context: HttpContext,
  ): Promise<boolean>
}

export function createApi(): Api {
  const rpc = new StandardRPCHandler<HttpContext>(router, {
    interceptors: [told],
    plugins: [new StrictGetMethodPlugin()],
  })
  const rest = new StandardOpenAPIHandler<HttpContext>(router, { interceptors: [told] })
  const room = new BodyRoom()
  return {
    async serve({ req, res, path, query }, context) {
      const isRpc = path.startsWith('/rpc/')
      let body: unknown
      if (req.method !== 'GET' && req.method !== 'HEAD') {
        const max = limitOf(path)
        if (max > BODY_MAX) await takeRoom(room, { req, res, max }, context)
        const said = jsonOf(await readBody(req, max), req.headers['content-type'])
        body = isRpc ? (said ?? {}) : withQuery(said, query)
      }
      const called = { req, res, body }
      return isRpc
        ? callProcedure(rpc, called, { context, prefix: '/rpc', tagged: false })
        : callProcedure(rest, called, { context, tagged: true })
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

// One request from its head to its answer: who it is from, whether it may be, and which part of the house answers.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Engine } from '#engine/engine.ts'
import type { HttpContext } from '#engine/kernel.ts'
import { toContractError } from '#engine/kernel-errors.ts'
import { SECURITY_HEADERS, sendError } from '#engine/http/answer.ts'
import { createApi, type Api } from '#engine/http/api.ts'
import { createDocs, type Docs } from '#engine/http/docs.ts'
import { serveFn } from '#engine/http/fn.ts'
import { serveHealth, serveLoops, serveMetrics, serveReady } from '#engine/http/health.ts'
import { serveAuth, serveJoin } from '#engine/http/identity.ts'
import type { Listener } from '#engine/http/listen.ts'
import { servePage } from '#engine/http/pages.ts'
import { dropRest } from '#engine/http/request-body.ts'
import { ipOf, pathOf, refuseForged, requestIdOf } from '#engine/http/request.ts'
import { createUploads, UPLOAD_PATH, type Uploads } from '#engine/http/upload.ts'
import { AppError } from '#lib/error.ts'

/** How long a client that sends too much may take to read why. */
const LINGER_MS = 1_000

/** A year: who was here by https once is never sent elsewhere. */
const HSTS = 'max-age=31536000'

type Parts = { engine: Engine; api: Api; uploads: Uploads; docs: Docs; stopping: () => boolean }
type Request = { req: IncomingMessage; res: ServerResponse; patient: () => void }
type Exchange = Request & { path: string; query: string }

export function createListener(engine: Engine, stopping: () => boolean): Listener {
  const parts: Parts = {
    engine,
    api: createApi(),
    uploads: createUploads(),
    docs: createDocs(engine.version),
    stopping,
  }
  return (req, res, patient) => {
    const requestId = requestIdOf(req, engine)
    const ip = ipOf(req, engine.config.trustedProxies)
    const header = (name: string, value: string): void => void res.setHeader(name, value)
    const context: HttpContext = { engine, headers: req.headers, requestId, ip, header }
    observe(req, res, context)
    res.setHeader('x-request-id', requestId)
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) res.setHeader(name, value)
    if (engine.auth.url.startsWith('https://')) header('strict-transport-security', HSTS)
    answer(parts, context, { req, res, patient }).catch((error: unknown) =>
      fail({ req, res }, context, error),
    )
  }
}

async function answer(parts: Parts, context: HttpContext, request: Request): Promise<void> {
  const { req } = request
  const target = pathOf(req)
  if (!target) throw new AppError('INVALID', 'The request names no path')
  // A function's address has its own rule: callers without a cookie come from anywhere.
  if (!target.path.startsWith('/fn/')) refuseForged(req, context.engine.auth.origins)
  if (!(await dispatch(parts, context, { ...request, ...target })))
    throw new AppError('NOT_FOUND', `There is nothing at ${req.method} ${target.path}`, {
      details: { reason: 'NO_SUCH_PATH', next: 'See /docs' },
    })
}

/** False when nothing is there. */
async function dispatch(parts: Parts, context: HttpContext, exchange: Exchange): Promise<boolean> {
  const { req, res, path } = exchange
  if (path === UPLOAD_PATH) {
    await parts.uploads.serve(exchange, context)
    return true
  }
  if (path.startsWith('/rpc/') || path.startsWith('/v1/')) return parts.api.serve(exchange, context)
  if (path.startsWith('/fn/')) return serveFn(exchange, context)
  if (path.startsWith('/api/auth/')) return serveAuth(exchange, context)
  if (req.method === 'POST') {
    if (path !== '/setup' && path !== '/invitation') return false
    await serveJoin(exchange, context, path === '/setup' ? 'owner-link' : 'invitation')
    return true
  }
  if (req.method !== 'GET' && req.method !== 'HEAD') return false
  if (path === '/health') serveHealth(res)
  else if (path === '/ready') await serveReady(res, context, parts.stopping())
  else if (path === '/metrics') await serveMetrics(res, context)
  else if (path === '/loops') await serveLoops(res, context)
  else return (await parts.docs.serve(res, path)) || servePage(res, path)
  return true
}

function fail(
  { req, res }: { req: IncomingMessage; res: ServerResponse },
  { engine, requestId }: HttpContext,
  error: unknown,
): void {
  // The client is gone: there is nobody to tell.
  if (res.destroyed || req.socket.destroyed) return void res.destroy()
  const told = toContractError(error, { log: engine.log, requestId })
  if (res.headersSent) return void res.destroy()
  // The client hears why while it still sends; not for ever.
  dropRest(req, LINGER_MS, engine.clock)
  const { retryAfterMs } = told.data ?? {}
  if (typeof retryAfterMs === 'number')
    res.setHeader('retry-after', String(Math.ceil(retryAfterMs / 1000)))
  sendError(res, told, req.url?.startsWith('/rpc/') ? 'rpc' : 'rest')
}

const FAMILIES = ['rpc', 'v1', 'fn', 'api', 'docs', 'assets', 'health', 'ready', 'metrics', 'loops']

function observe(req: IncomingMessage, res: ServerResponse, context: HttpContext): void {
  const { engine, requestId, ip } = context
  const began = engine.clock.monotonic()
  const path = pathOf(req)?.path ?? ''
  const family = path.split('/')[1] ?? ''
  const route = FAMILIES.includes(family) ? family : 'page'
  res.once('close', () => {
    engine.metrics.http.labels(route, String(res.statusCode)).inc()
    const ms = Math.round(engine.clock.monotonic() - began)
    // The path holds no secret: tokens stand after # or in bodies.
    engine.log.debug(
      { requestId, ip, method: req.method, path, status: res.statusCode, ms },
      'answered',
    )
  })
}

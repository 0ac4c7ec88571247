// What a supervisor, a load balancer and Prometheus ask.
import type { ServerResponse } from 'node:http'
import type { HttpContext } from '#engine/kernel.ts'
import { send, sendJson } from '#engine/http/answer.ts'
import { resolveCaller } from '#engine/caller.ts'
import { AppError } from '#lib/error.ts'
import { PLATFORM_SLUG } from '#store/members.ts'
import { ping } from '#store/ping.ts'

/** A store that answers slower than this is as good as away for who decides where to send requests. */
const PING_MS = 2_000

/** The process lives; nothing else is asked. */
export const serveHealth = (res: ServerResponse): void => sendJson(res, 200, { ok: true })

/** 200 when a call would be served: the store answers and the engine does not stop. */
export async function serveReady(
  res: ServerResponse,
  { engine }: HttpContext,
  stopping: boolean,
): Promise<void> {
  const store = await ping(engine.db, engine.clock, PING_MS)
  const ready = store && !stopping
  sendJson(res, ready ? 200 : 503, {
    ready,
    store,
    stopping,
    engine: engine.id,
    version: engine.version,
  })
}

/** For this machine, and for members of the platform's org: numbers tell about tenants. */
export async function serveMetrics(res: ServerResponse, context: HttpContext): Promise<void> {
  const { engine, ip, headers } = context
  // A proxy on this machine that we were not told of speaks for everybody.
  const proxied = headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined
  const local = (ip === '127.0.0.1' || ip === '::1') && !proxied
  if (!local) await refuseOthers(context)
  engine.metrics.sessions.set(engine.gateway.sessions())
  const body = await engine.metrics.registry.metrics()
  send(res, 200, { type: engine.metrics.registry.contentType, body })
}

async function refuseOthers({ engine, headers }: HttpContext): Promise<void> {
  const caller = await resolveCaller(engine, headers)
  if (caller.orgs.some((org) => org.slug === PLATFORM_SLUG)) return
  throw new AppError('FORBIDDEN', 'Metrics are for members of the platform organization', {
    details: { reason: 'NOT_A_MEMBER', next: 'Send an API key of the platform organization' },
  })
}

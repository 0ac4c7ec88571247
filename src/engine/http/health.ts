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

export async function serveMetrics(res: ServerResponse, context: HttpContext): Promise<void> {
  await refuseOthers(context)
  const { metrics, gateway, loops } = context.engine
  metrics.sessions.set(gateway.sessions())
  for (const { status } of loops) {
    metrics.loopFailing.labels(status.name).set(status.error === null ? 0 : 1)
    metrics.loopSeconds.labels(status.name).set((status.lastMs ?? 0) / 1000)
  }
  const body = await metrics.registry.metrics()
  send(res, 200, { type: metrics.registry.contentType, body })
}

/** What each loop did last, and why it fails if it does. */
export async function serveLoops(res: ServerResponse, context: HttpContext): Promise<void> {
  await refuseOthers(context)
  sendJson(res, 200, { loops: context.engine.loops.map(({ status }) => status) })
}

/** For this machine, and for members of the platform's org: numbers tell about tenants. */
async function refuseOthers({ engine, ip, headers }: HttpContext): Promise<void> {
  // A proxy on this machine that we were not told of speaks for everybody.
  const proxied = headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined
  if ((ip === '127.0.0.1' || ip === '::1') && !proxied) return
  const caller = await resolveCaller(engine, headers)
  if (caller.orgs.some((org) => org.slug === PLATFORM_SLUG)) return
  throw new AppError('FORBIDDEN', 'This is for members of the platform organization', {
    details: { reason: 'NOT_A_MEMBER', next: 'Send an API key of the platform organization' },
  })
}

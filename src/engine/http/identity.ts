// The identity system's routes, and the two by which people join.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import type { JoinRequest } from '#engine/auth-join.ts'
import { PASSWORD_LENGTH } from '#core/access/limits.ts'
import { CLIENT_IP } from '#engine/auth-better.ts'
import { type HttpContext, limitAddress } from '#engine/kernel.ts'
import { invalidInput } from '#engine/kernel-errors.ts'
import { textFaults } from '#engine/kernel-text.ts'
import { BODY_MAX, jsonOf, readBody } from '#engine/http/body.ts'
import { networkOf } from '#engine/http/request.ts'

type Exchange = { req: IncomingMessage; res: ServerResponse }

/** False when the route is none of those that may be reached. */
export async function serveAuth({ req, res }: Exchange, context: HttpContext): Promise<boolean> {
  const { auth } = context.engine
  const headers = new Headers()
  for (const [name, value] of Object.entries(req.headers))
    if (value !== undefined) headers.set(name, Array.isArray(value) ? value.join(', ') : value)
  // From the socket alone: whatever the client wrote there is gone.
  headers.set(CLIENT_IP, context.ip)
  headers.set('x-request-id', context.requestId)
  const { method = 'GET' } = req
  const body = method === 'GET' || method === 'HEAD' ? undefined : await readBody(req, BODY_MAX)
  // Its routes hand text to the store as it came.
  if (body?.includes('\\u0000') || body?.includes(0))
    throw invalidInput([{ message: 'the body must not contain NUL' }])
  const request = new Request(new URL(req.url ?? '/', auth.url), {
    method,
    headers,
    ...(body && body.length > 0 ? { body: new Uint8Array(body) } : {}),
  })
  const response = await auth.handle(request)
  if (!response) return false
  await forward(res, response)
  return true
}

const Join = z.object({
  token: z.string({ error: 'token is required: what stands after # in the link' }).min(1).max(200),
  name: z.string({ error: 'name is required' }).trim().min(1, 'name is required').max(200),
  email: z.email('email must be an e-mail address').max(254),
  password: z
    .string({ error: 'password is required' })
    .min(PASSWORD_LENGTH.min, `password must have at least ${PASSWORD_LENGTH.min} characters`)
    .max(PASSWORD_LENGTH.max, `password has at most ${PASSWORD_LENGTH.max} characters`),
})

/** POST /setup and POST /invitation: `{ token, name, email, password }`; the answer signs in by its cookies. */
export async function serveJoin(
  { req, res }: Exchange,
  context: HttpContext,
  by: JoinRequest['by'],
): Promise<void> {
  const { engine, ip, requestId } = context
  limitAddress(engine, 'sign-in', networkOf(ip))
  const body = jsonOf(await readBody(req, BODY_MAX), req.headers['content-type'])
  const parsed = Join.safeParse(body ?? {})
  const faults = parsed.error?.issues ?? textFaults(parsed.data)
  if (!parsed.success || faults.length > 0) throw invalidInput(faults)
  await forward(res, await engine.auth.join({ by, ...parsed.data }, { ip, requestId }))
}

async function forward(res: ServerResponse, response: Response): Promise<void> {
  const body = Buffer.from(await response.arrayBuffer())
  res.statusCode = response.status
  for (const [name, value] of response.headers)
    if (name !== 'set-cookie' && name !== 'content-length') res.setHeader(name, value)
  const cookies = response.headers.getSetCookie()
  if (cookies.length > 0) res.setHeader('set-cookie', cookies)
  res.setHeader('cache-control', 'no-store')
  res.end(body)
}

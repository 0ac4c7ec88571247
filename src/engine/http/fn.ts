// `POST /fn/<org>/<name>` (FN-9): a function as an HTTP address. The body is stdin, stdout is the answer, both streamed.
// 1. Whoever may not invoke learns nothing: an address without a function, one of another org and one that is not public
//    get the same answer.
// 2. Strangers call a public function on their address's account, before anything is looked up; not on the org's, which
//    they could use up.
// 3. A cookie proves nothing by itself: with one the Origin must be ours. Without one nothing speaks for the caller that
//    a page elsewhere could borrow.
// 4. What a guest writes is never taken for a page or a script of ours: bytes without a type, sandboxed.
// 5. A client that goes away cancels its invocation.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ORPCError } from '@orpc/server'
import { invoke as contract } from '#api/functions.ts'
import { NAME_LENGTH_MAX } from '#core/name.ts'
import { AppError } from '#lib/error.ts'
import { authorize, resolveCaller } from '#engine/caller.ts'
import { limitAddress, limitRate, type HttpContext } from '#engine/kernel.ts'
import { sendError } from '#engine/http/answer.ts'
import { readBody } from '#engine/http/body.ts'
import { FnAnswer } from '#engine/http/fn-answer.ts'
import { RequestBody } from '#engine/http/request-body.ts'
import { networkOf, refuseForged } from '#engine/http/request.ts'

const PATH = /^\/fn\/([^/]+)\/([^/]+)$/
/** Read whole before the function begins: such an invocation can be tried on another node. */
const SMALL_BODY_MAX = 64 * 1024
/** How long a client may go on sending what its function did not read. */
const UNREAD_MS = 10_000

export type FnExchange = {
  req: IncomingMessage
  res: ServerResponse
  path: string
  /** The body may take as long as the invocation. */
  patient: () => void
}

/** False for a path that cannot be a function's. */
export async function serveFn(exchange: FnExchange, context: HttpContext): Promise<boolean> {
  const { req, res, path } = exchange
  const { engine } = context
  const [, org, name] = PATH.exec(path) ?? []
  if (org === undefined || name === undefined) return false
  res.setHeader('content-security-policy', 'sandbox')
  if (req.method !== 'POST') {
    methodNotAllowed(res, 'POST')
    return true
  }
  if (req.headers.cookie !== undefined) refuseForged(req, engine.auth.origins)
  refuseKey(req)
  const allowed = await orgThatAllows(context, { org, name })
  await run(exchange, context, { ...allowed, name })
  return true
}

/** A stream is not kept, so it cannot be answered a second time: a key that did nothing would be worse than none. */
function refuseKey({ headers }: IncomingMessage): void {
  if (headers['idempotency-key'] === undefined) return
  throw new AppError('INVALID', 'Idempotency-Key is not taken here: stdout is streamed, not kept', {
    details: {
      reason: 'NO_IDEMPOTENCY_KEY',
      next: 'Send it without the header, or call POST /v1/functions/{name}/invoke with it',
    },
  })
}

type Named = { org: string; name: string }

/** `stranger`: only because the function is for everybody. */
type Allowed = { orgId: string; stranger: boolean }

/** The org's id when the caller may invoke there, or the function is for everybody. */
async function orgThatAllows(
  { engine, headers, ip }: HttpContext,
  { org, name }: Named,
): Promise<Allowed> {
  const { meta } = contract['~orpc']
  try {
    const caller = await resolveCaller(engine, headers)
    const call = { procedure: 'compute.functions.invoke', meta, org }
    const { orgId } = await authorize(engine, caller, call)
    limitRate(engine, 'invoke', orgId)
    return { orgId, stranger: false }
  } catch (error) {
    const refused =
      error instanceof AppError && ['UNAUTHENTICATED', 'FORBIDDEN'].includes(error.code)
    if (!refused) throw error
    limitAddress(engine, 'public-invoke', networkOf(ip))
    const orgId = mayExist({ org, name }) && (await engine.invoker.publicOrg({ org, name }))
    if (!orgId) throw error
    return { orgId, stranger: true }
  }
}

/** What is longer is no name and no id: it is not even remembered. */
const mayExist = ({ org, name }: Named): boolean =>
  Math.max(org.length, name.length) <= NAME_LENGTH_MAX

async function run(
  { req, res, patient }: FnExchange,
  { engine }: HttpContext,
  { orgId, stranger, name }: Allowed & { name: string },
): Promise<void> {
  const { clock, invoker } = engine
  const gone = new AbortController()
  res.once('close', () => {
    if (!res.writableFinished) gone.abort(new Error('the client went away'))
  })
  const stdin = await stdinOf(req, patient)
  if (res.destroyed) return
  res.setHeader('content-type', 'application/octet-stream')
  res.setHeader('cache-control', 'no-store')
  const answer = new FnAnswer(res, { clock, stranger })
  try {
    const invoked = await invoker.invoke({
      orgId,
      name,
      args: [],
      env: {},
      stdin,
      onStdout: (bytes) => answer.write(bytes),
      timeoutMs: undefined,
      signal: gone.signal,
    })
    answer.end(invoked)
  } finally {
    if (stdin instanceof RequestBody) stdin.drop(UNREAD_MS, clock)
  }
}

async function stdinOf(
  req: IncomingMessage,
  patient: () => void,
): Promise<Uint8Array | RequestBody> {
  const chunked = req.headers['transfer-encoding'] !== undefined
  const declared = Number(req.headers['content-length'] ?? 0)
  if (!chunked && declared <= SMALL_BODY_MAX) return readBody(req, SMALL_BODY_MAX)
  patient()
  return new RequestBody(req)
}

/** 405 in the shape of every refusal. */
export function methodNotAllowed(res: ServerResponse, allow: string): void {
  res.setHeader('allow', allow)
  const { method } = res.req
  const message = `${method} is not taken here; ${allow} is`
  const data = { reason: 'METHOD', next: `Send it by ${allow}` }
  sendError(res, new ORPCError('INVALID', { defined: true, status: 405, message, data }), 'rest')
}

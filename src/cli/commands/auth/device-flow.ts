// Device authorization (RFC 8628): a code shown here is approved in a browser, wherever that browser runs.
import { z } from 'zod'
import { httpFetch, ConnectionLost } from '#cli/http-fetch.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'

const CLIENT_ID = 'ccp'
const GRANT = 'urn:ietf:params:oauth:grant-type:device_code'
/** RFC 8628 §3.5: what `slow_down` adds. */
const SLOW_DOWN_MS = 5_000

const Started = z.object({
  device_code: z.string(),
  user_code: z.string(),
  verification_uri: z.string(),
  verification_uri_complete: z.string().optional(),
  expires_in: z.number(),
  /** RFC 8628 §3.2: five seconds when it is absent. */
  interval: z.number().default(5),
})
const Granted = z.object({ access_token: z.string().min(1) })
const Refused = z.object({ error: z.string(), error_description: z.string().optional() })

type Deps = { url: string; clock: Clock; signal: AbortSignal }

/** Shows the code by `show`, then waits for the approval. Answers the session token. */
export async function signInByDevice(
  deps: Deps,
  show: (code: { userCode: string; address: string }) => void,
): Promise<string> {
  const answer = await post(deps, '/api/auth/device/code', { client_id: CLIENT_ID })
  const started = Started.safeParse(answer)
  if (!started.success)
    throw new AppError('UNAVAILABLE', `${deps.url} offers no device sign-in`, {
      details: { reason: 'NOT_AN_ENGINE', next: 'Check CCP_API_URL' },
    })
  const { device_code, user_code, verification_uri, expires_in } = started.data
  show({
    userCode: user_code,
    address: started.data.verification_uri_complete ?? verification_uri,
  })
  const deadline = deps.clock.monotonic() + expires_in * 1000
  let intervalMs = started.data.interval * 1000
  while (deps.clock.monotonic() < deadline) {
    await deps.clock.sleep(intervalMs, deps.signal)
    const outcome = await poll(deps, device_code)
    if (outcome.kind === 'granted') return outcome.token
    if (outcome.kind === 'slow-down') intervalMs += SLOW_DOWN_MS
  }
  throw expired()
}

type Outcome = { kind: 'granted'; token: string } | { kind: 'pending' } | { kind: 'slow-down' }

async function poll(deps: Deps, device_code: string): Promise<Outcome> {
  const body = { grant_type: GRANT, device_code, client_id: CLIENT_ID }
  const answer = await post(deps, '/api/auth/device/token', body).catch((error: unknown) => {
    // RFC 8628 §3.5: a connection that broke is a reason to poll on.
    if (error instanceof ConnectionLost) return { error: 'authorization_pending' }
    throw error
  })
  const granted = Granted.safeParse(answer)
  if (granted.success) return { kind: 'granted', token: granted.data.access_token }
  const refused = Refused.safeParse(answer)
  const error = refused.success ? refused.data.error : 'an answer that is no OAuth answer'
  switch (error) {
    case 'authorization_pending':
      return { kind: 'pending' }
    case 'slow_down':
      return { kind: 'slow-down' }
    case 'expired_token':
      throw expired()
    case 'access_denied':
      throw new AppError('FORBIDDEN', 'the sign-in was denied in the browser', {
        details: { reason: 'SIGN_IN_DENIED' },
      })
    default:
      throw new AppError('UNAUTHENTICATED', `the sign-in ended: ${error}`, {
        details: { reason: 'SIGN_IN_FAILED', next: 'Try again: ccp auth login' },
      })
  }
}

const expired = (): AppError =>
  new AppError('UNAUTHENTICATED', 'the code expired before it was approved', {
    details: { reason: 'SIGN_IN_EXPIRED', next: 'Try again: ccp auth login' },
  })

/** Answers the JSON body whatever the status; undefined when there is none. */
async function post({ url, signal }: Deps, path: string, body: object): Promise<unknown> {
  const response = await httpFetch(
    new Request(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      body: JSON.stringify(body),
      signal,
    }),
  )
  return response.json().catch(() => undefined)
}

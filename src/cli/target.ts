// Which engine is called, and as whom. The first that is set wins:
//   address     CCP_API_URL · the current sign-in · the platform of `ccp dev` on this machine · http://127.0.0.1:7070
//   credential  CCP_API_KEY · CCP_SESSION_TOKEN · the sign-in at that address · the key of `ccp dev` (0600, D50)
import type { SessionContext } from '#cli/session-file.ts'
import { readSession } from '#cli/session-file.ts'
import { readLocalPlatform } from '#cli/local-platform.ts'
import type { Settings } from '#cli/settings.ts'
import { AppError } from '#lib/error.ts'

export type Credential =
  | { kind: 'api-key'; secret: string; from: string }
  | { kind: 'session'; secret: string; from: string }
  | { kind: 'none' }

export type Target = {
  /** Without a slash at the end. */
  url: string
  credential: Credential
  /** The org of the stored sign-in, if one was chosen. */
  orgId: string | undefined
  /** Where nodes dial, when it is known: 'host:port'. */
  sessions: string | undefined
}

export const DEFAULT_URL = 'http://127.0.0.1:7070'

/** The address in one form: scheme, host, port; no path, no slash. Errors: INVALID `API_URL`. */
export function normalizeUrl(text: string): string {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `https://${text}`
  const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol))
    throw new AppError('INVALID', `'${text}' is no address of an engine`, {
      details: { reason: 'API_URL', next: 'Write it like https://clutch.example.com' },
    })
  return url.origin
}

/** A function of what is on the disk and in the environment; asks no engine. */
export async function findTarget(settings: Settings, uid: number): Promise<Target> {
  const file = await readSession(settings.home)
  const local = await readLocalPlatform(settings, uid)
  const chosen = settings.apiUrl ?? file.current ?? local?.url ?? DEFAULT_URL
  const url = normalizeUrl(chosen)
  const context = file.contexts[url]
  return {
    url,
    credential: credentialOf(settings, context, local?.url === url ? local.key : undefined),
    orgId: context?.orgId ?? undefined,
    sessions: local?.url === url ? local.sessions : undefined,
  }
}

function credentialOf(
  settings: Settings,
  context: SessionContext | undefined,
  devKey: string | undefined,
): Credential {
  if (settings.apiKey !== undefined)
    return { kind: 'api-key', secret: settings.apiKey, from: 'CCP_API_KEY' }
  if (settings.sessionToken !== undefined)
    return { kind: 'session', secret: settings.sessionToken, from: 'CCP_SESSION_TOKEN' }
  if (context !== undefined)
    return { kind: 'session', secret: context.token, from: '`ccp auth login`' }
  if (devKey !== undefined)
    return { kind: 'api-key', secret: devKey, from: 'the platform of `ccp dev` on this machine' }
  return { kind: 'none' }
}

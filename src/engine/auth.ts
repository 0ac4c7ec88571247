// Who people and keys are, for the rest of the engine: better-auth behind it, our own keys and joining beside it.
import type { IncomingHttpHeaders } from 'node:http'
import { fromNodeHeaders } from 'better-auth/node'
import { z } from 'zod'
import { AUDITED, CLIENT_IP, createBetterAuth, originsOf, REACHABLE } from '#engine/auth-better.ts'
import {
  join,
  mintOwnerLink,
  type From,
  type JoinDeps,
  type JoinRequest,
  type MakeAccount,
} from '#engine/auth-join.ts'
import { mintOrgKey, ORG_KEY_PREFIX, OrgKeys } from '#engine/auth-keys.ts'
import { roleOf } from '#engine/caller.ts'
import type { EngineConfig } from '#engine/config.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import {
  deleteOrgKeysNamed,
  findOrgKeyByHash,
  insertOrgKey,
  touchOrgKeys,
} from '#store/auth-keys.ts'
import { transaction, type Store } from '#store/connect.ts'
import { insertEvent } from '#store/events.ts'
import { ping } from '#store/ping.ts'
import { ensurePlatformOrg, findOrg, orgsOfUser, PLATFORM_SLUG } from '#store/members.ts'

export type Auth = {
  /** Where people reach the engine, without a slash at its end. */
  url: string
  /** The origins that a browser may write from. */
  origins: readonly string[]
  platformOrgId: string
  keys: OrgKeys
  /** The person of a cookie or of a bearer token; undefined when their sign-in is not good. */
  person(headers: IncomingHttpHeaders): Promise<{ id: string; name: string } | undefined>
  /** One of better-auth's own routes, under /api/auth; undefined for one that is not to be reached. */
  handle(request: Request): Promise<Response | undefined>
  /** Joins by an owner link or an invitation and signs in; the answer carries the cookies. */
  join(request: JoinRequest, from: From): Promise<Response>
  /** A fresh one-time owner link while the platform has no owner; links of before end. */
  ownerLink(): Promise<string | undefined>
}

export type AuthDeps = {
  db: Store
  clock: Clock
  random: Random
  log: Logger
  config: Pick<EngineConfig, 'signUp' | 'signInsPerMinute'>
  url: string
  secret: string
}

const PREFIX = '/api/auth'
const PING_MS = 2_000

/** Makes the platform's org when it is not there (D50). */
export async function createAuth(deps: AuthDeps): Promise<Auth> {
  const { db, clock, random, config, log } = deps
  const url = deps.url.replace(/\/+$/, '')
  const platformOrgId = await ensurePlatformOrg(db, {
    id: newId('org', clock.now(), random),
    now: clock.now(),
  })
  const signUpOpen = config.signUp === 'open'
  const better = createBetterAuth({
    db,
    log,
    random,
    now: () => clock.now(),
    url,
    secret: deps.secret,
    signUpOpen,
    signInsPerMinute: config.signInsPerMinute,
    mayMakeOrgs: async (userId) => signUpOpen || (await ownsPlatform(db, userId)),
  })
  const joinDeps: JoinDeps = { db, clock, random, platformOrgId }
  const account = accountsOf(better)
  // One at a time: each holds a connection and needs a second one.
  let joining: Promise<unknown> = Promise.resolve()
  return {
    url,
    origins: originsOf(url),
    platformOrgId,
    keys: new OrgKeys({
      find: (hash) => findOrgKeyByHash(db, hash),
      touch: (used) => touchOrgKeys(db, used),
      clock,
      roleOf,
    }),
    async person(headers) {
      if (headers.cookie === undefined && headers.authorization === undefined) return undefined
      const found = await orUnavailable(deps, () =>
        better.api.getSession({ headers: fromNodeHeaders(headers) }),
      )
      return found ? { id: found.user.id, name: found.user.name } : undefined
    },
    async handle(request) {
      const path = new URL(request.url).pathname.slice(PREFIX.length)
      if (path === '/sign-up/email' && !signUpOpen)
        throw new AppError('FORBIDDEN', 'Sign-up is closed', {
          details: { reason: 'SIGN_UP_CLOSED', next: 'Ask an owner for an invitation' },
        })
      if (!REACHABLE.has(path) && path !== '/sign-up/email') return undefined
      return orUnavailable(deps, async () => {
        const response = await audited(deps, better, { request, path })
        if (response.status >= 500) throw new Error(`better-auth answered ${response.status}`)
        return response
      })
    },
    join(request, from) {
      const joined = joining.then(() =>
        orUnavailable(deps, () => join(joinDeps, request, { from, account })),
      )
      joining = joined.catch(() => undefined)
      return joined
    },
    async ownerLink() {
      const token = await mintOwnerLink(joinDeps)
      return token === undefined ? undefined : `${url}/setup#${token}`
    },
  }
}

async function ownsPlatform(db: Store, userId: string): Promise<boolean> {
  const orgs = await orgsOfUser(db, userId)
  return orgs.some((org) => org.slug === PLATFORM_SLUG && roleOf(org.role) === 'owner')
}

/** better-auth tells a store that is away as a fault of its own: asked here which of both it was. */
async function orUnavailable<T>(
  { db, clock }: Pick<AuthDeps, 'db' | 'clock'>,
  run: () => Promise<T>,
): Promise<T> {
  try {
    return await run()
  } catch (error) {
    if (error instanceof AppError || (await ping(db, clock, PING_MS))) throw error
    throw new AppError('UNAVAILABLE', 'The database cannot be reached', {
      cause: error,
      details: { reason: 'store_unavailable', next: 'Try again in a moment' },
    })
  }
}

const Said = z.object({
  organizationId: z.string().optional(),
  memberIdOrEmail: z.string().optional(),
  memberId: z.string().optional(),
  invitationId: z.string().optional(),
})

/** Serves one of better-auth's routes, and writes what it changed into the audit trail. */
async function audited(
  { db, clock, random }: AuthDeps,
  better: ReturnType<typeof createBetterAuth>,
  { request, path }: { request: Request; path: string },
): Promise<Response> {
  if (request.method !== 'POST' || !AUDITED.has(path)) return better.handler(request)
  const { headers } = request
  // Before: a sign-out leaves nobody to ask about.
  const session = await better.api.getSession({ headers })
  const said = Said.safeParse(
    await request
      .clone()
      .json()
      .catch(() => ({})),
  ).data
  const response = await better.handler(request)
  if (!response.ok) return response
  const answer = Answer.safeParse(
    await response
      .clone()
      .json()
      .catch(() => ({})),
  ).data
  const userId = session?.user.id ?? answer?.user?.id
  if (userId === undefined) return response
  const now = clock.now()
  await insertEvent(db, {
    id: newId('evt', now, random),
    orgId: path.startsWith('/organization/') ? (said?.organizationId ?? null) : null,
    at: new Date(now),
    kind: `auth${path.replace('/email', '').replaceAll('/', '.')}`,
    actorKind: 'user',
    actor: userId,
    ip: headers.get(CLIENT_IP),
    requestId: headers.get('x-request-id'),
    subject: said?.memberIdOrEmail ?? said?.memberId ?? said?.invitationId ?? null,
    data: {},
  })
  return response
}

const Answer = z.object({
  user: z.object({ id: z.string() }).optional(),
  message: z.string().optional(),
})

function accountsOf(better: ReturnType<typeof createBetterAuth>): MakeAccount {
  return async ({ mode, name, email, password }) => {
    const response =
      mode === 'sign-up'
        ? await better.api.signUpEmail({ body: { name, email, password }, asResponse: true })
        : await better.api.signInEmail({ body: { email, password }, asResponse: true })
    const answer = Answer.safeParse(await response.clone().json()).data
    if (response.ok && answer?.user) return { userId: answer.user.id, response }
    const why = answer?.message ?? `the account could not be made (${response.status})`
    if (response.status >= 500) throw new Error(`better-auth failed: ${why}`)
    throw new AppError('INVALID', why, {
      details: {
        reason: mode === 'sign-in' ? 'ACCOUNT_EXISTS' : 'ACCOUNT',
        next:
          mode === 'sign-in'
            ? 'There is an account with this address: give its password'
            : 'Correct it and try again; the link is still good',
      },
    })
  }
}

/**
 * A new API key of the platform org, in place of the engine's one before: for `secrets/dev-key` of `ccp dev`, which acts
 * by it (D50). Keeps `known` when that still opens the org.
 */
export async function ensureDevKey(
  deps: { id: string; db: Store; clock: Clock; random: Random; auth: Auth },
  known?: string,
): Promise<string> {
  const { db, clock, random, auth } = deps
  if (known !== undefined && (await auth.keys.find(known))) return known
  const org = await findOrg(db, auth.platformOrgId)
  if (!org) throw new Error('invariant broken: the platform has no org')
  const { secret, hash } = mintOrgKey(random)
  const now = clock.now()
  const name = `ccp dev on ${deps.id}`
  await transaction(db, async (tx) => {
    await deleteOrgKeysNamed(tx, { orgId: org.id, name })
    await insertOrgKey(tx, {
      id: newId('key', now, random),
      orgId: org.id,
      name,
      role: 'owner',
      hash,
      prefix: ORG_KEY_PREFIX,
      expiresAt: null,
      now,
    })
  })
  return secret
}

// Who is calling: an org's API key, or a person by the cookie or the bearer token of their sign-in.
import type { IncomingHttpHeaders } from 'node:http'
import { ROLES, type Meta, type Role } from '#api/base.ts'
import type { Caller } from '#engine/call.ts'
import type { Engine } from '#engine/engine.ts'
import { ORG_KEY_PREFIX } from '#engine/auth-keys.ts'
import { AppError } from '#lib/error.ts'
import { findOrg, orgsOfUser, PLATFORM_SLUG } from '#store/members.ts'

/** Throws UNAUTHENTICATED when no credential is there or it is not good. */
export async function resolveCaller(engine: Engine, headers: IncomingHttpHeaders): Promise<Caller> {
  const bearer = bearerOf(headers)
  const key = headers['x-api-key'] ?? (bearer?.startsWith(ORG_KEY_PREFIX) ? bearer : undefined)
  if (key !== undefined) return byKey(engine, String(key))
  if (bearer === undefined && headers.cookie === undefined)
    throw unauthenticated('NO_CREDENTIAL', 'No credential was sent')
  const person = await engine.auth.person(headers)
  if (person) return byPerson(engine, person)
  throw unauthenticated('SIGN_IN_ENDED', 'This sign-in is not known, or it has ended')
}

function bearerOf(headers: IncomingHttpHeaders): string | undefined {
  return /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]
}

async function byKey(engine: Engine, secret: string): Promise<Caller> {
  const key = await engine.auth.keys.find(secret)
  if (!key)
    throw unauthenticated(
      'API_KEY_INVALID',
      'This API key is not known, was revoked or has expired',
    )
  const { id, name, org } = key
  return { kind: 'api-key', id, name, orgs: [org], platformOperator: false }
}

async function byPerson(engine: Engine, person: { id: string; name: string }): Promise<Caller> {
  const orgs = (await orgsOfUser(engine.db, person.id)).map((org) => ({
    ...org,
    role: roleOf(org.role),
  }))
  const platformOperator = orgs.some((org) => org.slug === PLATFORM_SLUG && org.role === 'owner')
  return { kind: 'user', id: person.id, name: person.name, orgs, platformOperator }
}

/** The identity system keeps roles as text, several with commas: the strongest that we know counts. */
export function roleOf(text: string): Role {
  const named = text.split(',')
  return ROLES.findLast((role) => named.includes(role)) ?? 'guest'
}

const unauthenticated = (reason: string, message: string): AppError =>
  new AppError('UNAUTHENTICATED', message, {
    details: {
      reason,
      next: 'Sign in with `ccp auth login`, or send an API key in the header x-api-key',
    },
  })

export type Allowed = { orgId: string; role: Role }

/**
 * The org of the call by id or slug, and the caller's role there (D45). FORBIDDEN: the same words for an org that is not
 * there as for one that is another's.
 */
export async function authorize(
  engine: Engine,
  caller: Caller,
  call: { procedure: string; meta: Meta; org: string },
): Promise<Allowed> {
  const own = caller.orgs.find((org) => org.id === call.org || org.slug === call.org)
  const { role: least } = call.meta
  if (!own || (least === 'platform-operator' && caller.platformOperator))
    return asOperator(engine, caller, call)
  if (least === 'platform-operator') throw operatorsOnly(call.procedure, own.role)
  if (least !== 'signed-in' && ROLES.indexOf(own.role) < ROLES.indexOf(least))
    throw new AppError(
      'FORBIDDEN',
      `${call.procedure} needs the role ${least} in ${own.slug}; this ${caller.kind === 'user' ? 'person' : 'key'} has ${own.role}`,
      {
        details: {
          reason: 'ROLE',
          needs: least,
          has: own.role,
          next: `Ask an owner of ${own.slug} for the role ${least}`,
        },
      },
    )
  return { orgId: own.id, role: own.role }
}

const operatorsOnly = (procedure: string, has: Role): AppError =>
  new AppError('FORBIDDEN', `${procedure} is for a platform operator`, {
    details: {
      reason: 'ROLE',
      needs: 'platform-operator',
      has,
      next: 'Ask an owner of the platform: they sign in as themselves, not by an API key',
    },
  })

async function asOperator(
  engine: Engine,
  caller: Caller,
  call: { meta: Meta; org: string },
): Promise<Allowed> {
  const { operator, role } = call.meta
  if (caller.platformOperator && (operator || role === 'platform-operator')) {
    const org = await findOrg(engine.db, call.org)
    if (org) return { orgId: org.id, role: 'guest' }
  }
  throw new AppError('FORBIDDEN', `You are no member of the organization ${call.org}`, {
    details: { reason: 'NOT_A_MEMBER', next: 'See `ccp auth whoami` for your organizations' },
  })
}

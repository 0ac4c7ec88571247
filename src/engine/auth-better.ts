// better-auth as this platform uses it: e-mail and password, organizations, sign-in from a terminal by a device code.
// Its routes for API keys, invitations and sign-up are not reachable: ours audit, and check what it does not (auth-join.ts).
import { apiKey } from '@better-auth/api-key'
import { betterAuth } from 'better-auth'
import { APIError } from 'better-auth/api'
import { bearer, deviceAuthorization, organization } from 'better-auth/plugins'
import { createAccessControl } from 'better-auth/plugins/access'
import { defaultStatements } from 'better-auth/plugins/organization/access'
import { hashingAdapter } from '#engine/auth-adapter.ts'
import { PASSWORD_LENGTH, SIGN_IN_MS } from '#core/access/limits.ts'
import { NAME_LENGTH_MAX, NAME_PATTERN, NAME_RULE } from '#core/name.ts'
import type { Instant } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import type { Store } from '#store/connect.ts'

/** Set by our HTTP side from the socket: a client's own header of this name is dropped. */
export const CLIENT_IP = 'x-clutch-client-ip'
/** The only client of the device flow. */
const DEVICE_CLIENT = 'ccp'
/** Beside sign-in: polls of a page and of a terminal that waits for its approval. */
const OTHER_PER_WINDOW = { window: 10, max: 100 }

/** Its routes that HTTP may reach. Sign-up is one of them only where it is open. */
export const REACHABLE = new Set([
  '/ok',
  '/sign-in/email',
  '/sign-out',
  '/get-session',
  '/change-password',
  '/update-user',
  '/revoke-sessions',
  '/device',
  '/device/code',
  '/device/token',
  '/device/approve',
  '/device/deny',
  '/organization/create',
  '/organization/update',
  '/organization/list',
  '/organization/list-members',
  '/organization/list-invitations',
  '/organization/cancel-invitation',
  '/organization/remove-member',
  '/organization/update-member-role',
  '/organization/leave',
])

/** Of these, what changes something that an audit asks about. */
export const AUDITED = new Set([
  '/sign-in/email',
  '/sign-up/email',
  '/sign-out',
  '/change-password',
  '/revoke-sessions',
  '/device/approve',
  '/device/deny',
  '/organization/create',
  '/organization/update',
  '/organization/cancel-invitation',
  '/organization/remove-member',
  '/organization/update-member-role',
  '/organization/leave',
])

export type BetterDeps = {
  db: Store
  log: Logger
  random: Random
  now: () => Instant
  /** Where people reach us; https makes the cookies Secure and `__Host-`. */
  url: string
  secret: string
  signUpOpen: boolean
  signInsPerMinute: number
  mayMakeOrgs: (userId: string) => Promise<boolean>
}

// oxlint-disable-next-line typescript/explicit-function-return-type -- its type is made of its plugins
export function createBetterAuth(deps: BetterDeps) {
  return betterAuth({
    appName: 'Clutch',
    baseURL: deps.url,
    secret: deps.secret,
    trustedOrigins: originsOf(deps.url),
    database: { db: deps.db, type: 'postgres', transaction: true },
    telemetry: { enabled: false },
    logger: { log: (level, message, ...more) => log(deps.log, level, [message, ...more]) },
    user: { modelName: 'users' },
    session: {
      modelName: 'sessions',
      expiresIn: SIGN_IN_MS / 1000,
      cookieCache: { enabled: false },
    },
    account: { modelName: 'accounts' },
    verification: { modelName: 'verifications' },
    emailAndPassword: {
      enabled: true,
      minPasswordLength: PASSWORD_LENGTH.min,
      maxPasswordLength: PASSWORD_LENGTH.max,
    },
    rateLimit: {
      enabled: true,
      storage: 'database',
      modelName: 'rate_limits',
      ...OTHER_PER_WINDOW,
      customRules: {
        '/sign-in/email': { window: 60, max: deps.signInsPerMinute },
        '/sign-up/email': { window: 60, max: deps.signInsPerMinute },
        '/change-password': { window: 60, max: deps.signInsPerMinute },
        // Eight characters of 31: a guess at a code that waits must stay hopeless.
        '/device': { window: 60, max: 20 },
        '/device/approve': { window: 60, max: 20 },
      },
    },
    advanced: {
      cookiePrefix: 'clutch',
      ...cookies(deps.url),
      ipAddress: { ipAddressHeaders: [CLIENT_IP] },
      database: {
        generateId: ({ model }) =>
          model === 'organization' ? newId('org', deps.now(), deps.random) : randomId(deps.random),
      },
    },
    plugins: plugins(deps),
  })
}

// oxlint-disable-next-line typescript/explicit-function-return-type -- as above
function plugins(deps: BetterDeps) {
  const access = createAccessControl(defaultStatements)
  const none = access.newRole({})
  const owner = access.newRole({
    organization: ['update'],
    member: ['create', 'update', 'delete'],
    invitation: ['create', 'cancel'],
  })
  return [
    {
      id: 'clutch-hashing',
      init: (context) => ({ context: { adapter: hashingAdapter(context.adapter) } }),
    } satisfies Plugin,
    organization({
      ac: access,
      roles: { owner, admin: none, member: none, guest: none },
      allowUserToCreateOrganization: (user) => deps.mayMakeOrgs(user.id),
      disableOrganizationDeletion: true,
      organizationHooks: {
        async beforeCreateOrganization({ organization: { slug = '' } }) {
          if (NAME_PATTERN.test(slug) && slug.length <= NAME_LENGTH_MAX) return
          throw new APIError('BAD_REQUEST', { message: `slug must be ${NAME_RULE}` })
        },
        // A slug stands for the org's id everywhere, and the platform's is known by it.
        async beforeUpdateOrganization({ organization: { slug } }) {
          if (slug === undefined) return
          throw new APIError('BAD_REQUEST', { message: 'The slug of an organization stays' })
        },
      },
      schema: {
        organization: { modelName: 'organizations' },
        member: { modelName: 'members' },
        invitation: { modelName: 'invitations' },
      },
    }),
    // Only for its table: calls are checked by OrgKeys, and its own limiter would allow ten a day.
    apiKey([{ configId: 'org', references: 'organization', rateLimit: { enabled: false } }]),
    deviceAuthorization({
      verificationUri: '/device',
      expiresIn: '10m',
      interval: '5s',
      validateClient: (clientId) => clientId === DEVICE_CLIENT,
    }),
    bearer(),
  ]
}

type Plugin = NonNullable<NonNullable<Parameters<typeof betterAuth>[0]>['plugins']>[number]

const randomId = (random: Random): string => Buffer.from(random.bytes(18)).toString('base64url')

/** On loopback the browser may say localhost where we say 127.0.0.1. */
export function originsOf(url: string): string[] {
  const { origin, protocol, port, hostname } = new URL(url)
  const loopback = ['127.0.0.1', 'localhost', '[::1]']
  if (!loopback.includes(hostname)) return [origin]
  return loopback.map((host) => `${protocol}//${host}${port === '' ? '' : `:${port}`}`)
}

function cookies(url: string): {
  useSecureCookies: boolean
  cookies: Record<string, { name: string; attributes: { secure: boolean } }>
} {
  const secure = url.startsWith('https://')
  const names = ['session_token', 'session_data', 'account_data', 'dont_remember']
  const named = names.map((name) => [
    name,
    { name: `${secure ? '__Host-' : ''}clutch.${name}`, attributes: { secure } },
  ])
  // The name carries the prefix; its own switch would put `__Secure-` before it.
  return { useSecureCookies: false, cookies: Object.fromEntries(named) }
}

/** Of what it adds only errors are kept: other values may be what a person sent. */
function log(to: Logger, level: string, said: readonly unknown[]): void {
  const message = said
    .filter((one) => typeof one === 'string' || one instanceof Error)
    .map((one) => messageOf(one))
    .join(': ')
  if (level === 'error') to.error({ part: 'auth' }, message)
  else if (level === 'warn') to.warn({ part: 'auth' }, message)
  else to.debug({ part: 'auth' }, message)
}

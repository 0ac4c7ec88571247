// One engine for a test: real Postgres (a database of its own), real HTTP on a free port, the near side all real. The far
// side, gateway and invoker, is a stand-in unless the test brings its own.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createORPCClient } from '@orpc/client'
import { RPCLink } from '@orpc/client/fetch'
import type { ContractRouterClient } from '@orpc/contract'
import type { Role } from '#api/base.ts'
import type { contract } from '#api/contract.ts'
import { createAuth } from '#engine/auth.ts'
import { mintOrgKey, ORG_KEY_PREFIX } from '#engine/auth-keys.ts'
import { parseConfig, type EngineConfig } from '#engine/config.ts'
import type { Engine } from '#engine/engine.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import { listenHttp } from '#engine/http/listen.ts'
import { createListener } from '#engine/http/serve.ts'
import { createMetrics } from '#engine/metrics.ts'
import { RateLimit } from '#engine/rate-limit.ts'
import { systemClock, type Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import { silentLogger, type Logger } from '#lib/log.ts'
import type { Loop } from '#lib/loop.ts'
import { seededRandom } from '#lib/random.ts'
import { insertOrgKey } from '#store/auth-keys.ts'
import type { Store } from '#store/connect.ts'
import { openBlobs } from '#store/blobs.ts'
import { openKeyring } from '#store/keyring.ts'
import { insertOrg, PLATFORM_SLUG } from '#store/members.ts'
import { testDatabase, type Scope } from '#store/test-database.ts'

export type Client = ContractRouterClient<typeof contract>

export type WorldOptions = {
  /** The system's clock unless given; timers of HTTP and Postgres are the system's in any case. */
  clock?: Clock
  seed?: string
  /** A store of the test's own; its end is the test's, too. */
  db?: Store
  log?: Logger
  config?: Partial<EngineConfig>
  /** Where people reach the engine, as it is told; requests still go to the port it listens on. */
  publicUrl?: string
  /** Built when the rest of the engine is there; stand-ins unless given. */
  gateway?: (engine: EngineWithout<'gateway' | 'invoker' | 'loops'>) => Gateway | Promise<Gateway>
  invoker?: (engine: EngineWithout<'invoker' | 'loops'>) => Invoker | Promise<Invoker>
  /** What the engine tells the status of; the test starts and stops them. */
  loops?: readonly Loop[]
}
export type EngineWithout<K extends keyof Engine> = Omit<Engine, K>

export type Owner = { email: string; password: string; userId: string; cookie: string }

export type World = {
  engine: Engine
  url: string
  /** Where the engine's blobs are. */
  blobsFolder: string
  /** The gateway's stand-in saw these sessions ended. */
  ended: { nodeRecordId: string; reason: string; retry: boolean }[]
  /** How often the invoker's stand-in was told of a change. */
  woken(): number
  /** The org `platform`. */
  platformOrgId: string
  /** Makes another org and answers its id; its slug is `slug`. */
  makeOrg(slug: string): Promise<string>
  /** A new API key of an org (the platform's unless given). */
  orgKey(role: Role, orgId?: string): Promise<string>
  /** The typed client, acting by an API key or a bearer token. */
  client(credential: string): Client
  /** Opens the owner link and makes the first account. */
  signUpOwner(person?: { email: string; password: string }): Promise<Owner>
  /** A plain request; JSON bodies are encoded. */
  fetch(path: string, init?: PlainInit): Promise<Response>
}

export type PlainInit = {
  method?: string
  headers?: Record<string, string>
  body?: unknown
  /** By default the world's own origin is sent with writes. */
  origin?: string | null
}

export async function makeWorld(t: Scope, options: WorldOptions = {}): Promise<World> {
  const clock = options.clock ?? systemClock
  const random = seededRandom(options.seed ?? 'world')
  const log = options.log ?? silentLogger
  const db = options.db ?? (await testDatabase(t))
  const folder = await mkdtemp(join(tmpdir(), 'clutch-world-'))
  const config = { ...parseConfig({}, ['--http-port', '0']), ...options.config }
  const server = await listenHttp({ host: '127.0.0.1', port: 0 }, systemClock)
  t.after(async () => {
    await server.stop(1000)
    await rm(folder, { recursive: true, force: true })
  })
  const keyring = await openKeyring(join(folder, 'secrets'), random)
  const secret = keyring.auth.current.bytes().toString('base64')
  const { url } = server
  const publicUrl = options.publicUrl ?? url
  const auth = await createAuth({ db, clock, random, log, config, url: publicUrl, secret })
  const ended: World['ended'] = []
  let wakes = 0
  const base: EngineWithout<'gateway' | 'invoker' | 'loops'> = {
    id: newId('eng', clock.now(), random),
    version: '0.0.0-test',
    config,
    clock,
    random,
    log,
    metrics: createMetrics(),
    claims: new Map(),
    rateLimit: new RateLimit(
      {
        enroll: config.enrollsPerMinute,
        deploy: config.deploysPerMinute,
        invoke: config.invokesPerMinute,
        'public-invoke': config.publicInvokesPerMinute,
        'sign-in': config.signInsPerMinute,
      },
      clock,
    ),
    db,
    keyring,
    blobs: await openBlobs(join(folder, 'blobs'), { clock, random }),
    auth,
  }
  const gateway = await (options.gateway?.(base) ?? standInGateway(ended))
  const invoker = await (options.invoker?.({ ...base, gateway }) ?? standInInvoker(() => wakes++))
  const engine: Engine = { ...base, gateway, invoker, loops: options.loops ?? [] }
  server.serve(createListener(engine, () => server.stopping()))
  return {
    engine,
    url,
    blobsFolder: join(folder, 'blobs'),
    ended,
    woken: () => wakes,
    platformOrgId: auth.platformOrgId,
    ...people(engine, url),
  }
}

function people(
  engine: Engine,
  url: string,
): Pick<World, 'makeOrg' | 'orgKey' | 'client' | 'signUpOwner' | 'fetch'> {
  const { auth, db, clock, random } = engine
  const plain = (path: string, init: PlainInit = {}): Promise<Response> => {
    const method = init.method ?? (init.body === undefined ? 'GET' : 'POST')
    const origin = init.origin === undefined ? auth.url : init.origin
    const own = method === 'GET' || origin === null ? {} : { origin }
    const type: Record<string, string> =
      init.body === undefined ? {} : { 'content-type': 'application/json' }
    const headers = { ...type, ...own, ...init.headers }
    const body = typeof init.body === 'string' ? init.body : JSON.stringify(init.body)
    return fetch(`${url}${path}`, {
      method,
      headers,
      redirect: 'manual',
      ...(init.body === undefined ? {} : { body }),
    })
  }
  return {
    fetch: plain,
    async makeOrg(slug) {
      const id = newId('org', clock.now(), random)
      await insertOrg(db, { id, slug, name: slug, now: clock.now() })
      return id
    },
    async orgKey(role, orgId = auth.platformOrgId) {
      const { secret, hash } = mintOrgKey(random)
      const now = clock.now()
      const id = newId('key', now, random)
      const name = `test ${role}`
      const row = { id, orgId, name, role, hash, prefix: ORG_KEY_PREFIX, expiresAt: null, now }
      await insertOrgKey(db, row)
      return secret
    },
    client: (credential) => createClient(url, credential),
    async signUpOwner(person = { email: 'owner@example.test', password: 'correct horse battery' }) {
      const link = await auth.ownerLink()
      const token = link?.split('#')[1]
      if (token === undefined) throw new Error('the platform has an owner already')
      const response = await plain('/setup', { body: { token, name: 'Olive Owner', ...person } })
      if (!response.ok) throw new Error(`the owner cannot sign up: ${await response.text()}`)
      const { user } = (await response.json()) as { user: { id: string } }
      return { ...person, userId: user.id, cookie: cookieOf(response) }
    },
  }
}

/** What a browser would send back. */
export const cookieOf = (response: Response): string =>
  response.headers
    .getSetCookie()
    .map((cookie) => cookie.split(';')[0] ?? '')
    .join('; ')

function createClient(url: string, credential: string): Client {
  const headers = { authorization: `Bearer ${credential}` }
  return createORPCClient(new RPCLink({ url: `${url}/rpc`, headers }))
}

/** The org of `makeWorld`'s keys, by its slug. */
export const ORG = PLATFORM_SLUG

function standInGateway(ended: World['ended']): Gateway {
  return {
    session: () => undefined,
    openStream: () =>
      Promise.reject(
        new AppError('UNAVAILABLE', 'no session', { details: { reason: 'NODE_LOST' } }),
      ),
    endSession: (nodeRecordId, { reason, retry }) =>
      void ended.push({ nodeRecordId, reason, retry }),
    onChange: () => () => undefined,
    sessions: () => 0,
  }
}

export function standInInvoker(woken: () => void): Invoker {
  return {
    invoke: async () => ({
      outcome: { kind: 'no-node', message: 'no node can run this: a stand-in runs nothing' },
      durationMs: 0,
      memPeakMb: null,
      fuelUsed: null,
      stdout: new Uint8Array(),
      stderr: new Uint8Array(),
      stdoutTruncated: false,
      stderrTruncated: false,
      node: null,
    }),
    publicOrg: async () => undefined,
    changed: woken,
    hearing: () => undefined,
    prepare: () => Promise.reject(new AppError('UNAVAILABLE', 'a stand-in prepares nothing')),
    tidySlots: async () => ({}),
    flushHistory: async () => 0,
    running: () => 0,
    stop: async () => undefined,
  }
}

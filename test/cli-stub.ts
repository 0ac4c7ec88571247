// An engine for the CLI's tests: the real contract over real HTTP, with handlers that remember what they were asked.
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { implement } from '@orpc/server'
import { RPCHandler } from '@orpc/server/node'
import { contract } from '#api/contract.ts'

const AT = '2026-01-01T00:00:00.000Z'

export const node = {
  id: 'node_01jd0000000000000000000000',
  node_id: 'node-a1',
  owner_org_id: 'org_1',
  site_id: 'site_1',
  pool_id: 'pool_1',
  label: null,
  contributor: null,
  region: null,
  role: 'host' as const,
  trust: 'tenant-owned' as const,
  trust_tier: 'secure' as const,
  pending_trust_tier: null,
  manifest: null,
  used: { cpu_millis: 0, mem_mb: 0 },
  provision_state: 'adopting' as const,
  failure: null,
  maintenance: false,
  cordoned: false,
  connectivity: 'disconnected' as const,
  draining: false,
  no_schedule_reasons: [],
  schedulable: false,
  unschedulable: { bucket: 'provisioning', message: 'its provision state is adopting' },
  generation: 0,
  observed_generation: 0,
  identity_generation: 1,
  version: 1,
  agent_version: null,
  jail_missing: null,
  session: null,
  last_seen_at: null,
  created_at: AT,
}

const fn = {
  id: 'fn_1',
  name: 'word-count',
  version: 1,
  sha256: 'ab'.repeat(32),
  size_bytes: 36_500,
  cpu_millis: 1000,
  mem_mb: 64,
  allow_community: false,
  region: null,
  timeout_ms: 30_000,
  fuel_max: null,
  idempotent: false,
  public: false,
  created_at: AT,
  updated_at: AT,
}

export const invoked = {
  ok: true,
  exitCode: 0,
  durationMs: 4,
  stdout: 'out\n',
  stderr: '',
  stdoutTruncated: false,
  stderrTruncated: false,
  fuelUsed: 10,
  memPeakMb: 1,
  node_id: 'node-a1',
  trust_tier: 'secure' as const,
}

export type Stub = {
  url: string
  /** Path and input of each call, in order. */
  calls: {
    path: string
    input: unknown
    key: string | undefined
    authorization: string | undefined
  }[]
  orgs: { id: string; slug: string; name: string; role: 'owner' }[]
  nodes: (typeof node)[]
  invoked: Record<string, unknown>
  /** Thrown by every handler while it is set. */
  refuse: (() => Error) | undefined
  /** Takes a request away from the handlers; returns true when it answered or broke it. */
  before:
    | ((request: IncomingMessage, answer: (status: number, body: unknown) => void) => boolean)
    | undefined
  close(): Promise<void>
}

type Context = { request: IncomingMessage }

export async function startStub(t: TestContext): Promise<Stub> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const stub: Stub = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls: [],
    orgs: [{ id: 'org_1', slug: 'acme', name: 'Acme', role: 'owner' }],
    nodes: [node],
    invoked,
    refuse: undefined,
    before: undefined,
    close: () => closeServer(server),
  }
  const handler = new RPCHandler(createRouter(stub))
  server.on('request', (request, response) => {
    const answer = (status: number, body: unknown): void => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body))
    }
    if (stub.before?.(request, answer) === true) return
    void handler
      .handle(request, response, { prefix: '/rpc', context: { request } })
      .then(({ matched }) => matched || answer(404, { message: 'nothing here' }))
  })
  t.after(() => stub.close())
  return stub
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections()
  return new Promise((done) => server.close(() => done()))
}

function createRouter(stub: Stub) {
  const os = implement(contract)
    .$context<Context>()
    .use(({ context, path, next }, input) => {
      const { headers } = context.request
      stub.calls.push({
        path: path.join('.'),
        input,
        key: headers['idempotency-key'] as string | undefined,
        authorization: headers.authorization ?? (headers['x-api-key'] as string | undefined),
      })
      if (stub.refuse) throw stub.refuse()
      return next()
    })
  const { access, compute } = os
  const { nodes, functions } = compute
  const one = () => ({ node })
  return os.router({
    access: {
      whoami: access.whoami.handler(() => ({
        kind: 'user',
        id: 'user_1',
        name: 'Ada',
        orgs: stub.orgs,
        platform_operator: true,
      })),
      keys: {
        create: access.keys.create.handler(({ input }) => ({
          key: key(input.name),
          secret: 'clt_k_secret',
        })),
        list: access.keys.list.handler(() => ({ keys: [] })),
        revoke: access.keys.revoke.handler(() => ({ key: key('ci') })),
      },
      invitations: {
        create: access.invitations.create.handler(() => ({
          id: 'inv_1',
          link: 'http://engine/join#inv_1',
          expires_at: AT,
        })),
      },
    },
    compute: {
      nodes: {
        enroll: nodes.enroll.handler(({ input }) => ({
          node: { ...node, node_id: input.nodeId },
          token: 'clt_n_secret',
        })),
        list: nodes.list.handler(() => ({ nodes: stub.nodes, next_cursor: null })),
        get: nodes.get.handler(() => ({ node, work: [], commands: [] })),
        setTrustTier: nodes.setTrustTier.handler(one),
        setDraining: nodes.setDraining.handler(({ input }) => ({
          node: { ...node, draining: input.draining },
        })),
        revoke: nodes.revoke.handler(one),
        revokeIdentity: nodes.revokeIdentity.handler(() => ({ node, token: 'clt_n_second' })),
      },
      functions: {
        deploy: functions.deploy.handler(({ input }) => ({
          function: { ...fn, name: input.name },
        })),
        list: functions.list.handler(() => ({ functions: [fn], next_cursor: null })),
        get: functions.get.handler(() => ({
          function: fn,
          versions: [{ ...fn, current: true, created_by: 'Ada' }],
        })),
        delete: functions.delete.handler(() => ({ function: fn })),
        rollback: functions.rollback.handler(() => ({ function: fn })),
        invoke: functions.invoke.handler(() => stub.invoked as typeof invoked),
        invocations: functions.invocations.handler(() => ({ invocations: [], next_cursor: null })),
      },
      placement: {
        explain: compute.placement.explain.handler(() => ({
          placeable: false,
          summary: 'no node can run this: enroll one',
          nodes: [],
        })),
      },
      quotas: {
        get: compute.quotas.get.handler(() => ({
          quotas: { invocations_at_once: 1000, source: 'default' as const },
        })),
        set: compute.quotas.set.handler(({ input }) => ({
          quotas: {
            invocations_at_once: input.invocationsAtOnce ?? 1000,
            source: input.invocationsAtOnce === null ? ('default' as const) : ('org' as const),
          },
        })),
      },
      events: { list: compute.events.list.handler(() => ({ events: [], next_cursor: null })) },
    },
  })
}

const key = (name: string) => ({
  id: 'key_1',
  name,
  role: 'member' as const,
  created_at: AT,
  expires_at: null,
  last_used_at: null,
})

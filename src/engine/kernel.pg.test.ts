// The kernel over real HTTP: what every procedure has without writing it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { outputCheck, runCall, type HttpContext, type Procedure } from '#engine/kernel.ts'
import { createLogger } from '#lib/log.ts'
import { AppError } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import { prune } from '#engine/loops/prune.ts'
import { until } from '#lib/until.ts'
import { claimKey, releaseKeysOfEngine } from '#store/idempotency.ts'
import { makeWorld, standInInvoker, type World } from '#test/world.ts'

const orgId = 'platform'

type Json = Record<string, unknown> & { data?: Record<string, unknown> }
const json = async (response: Response): Promise<Json> => (await response.json()) as Json

/** Lines that the engine logged. */
function captured(): {
  log: ReturnType<typeof createLogger>
  lines: () => Json[]
  text: () => string
} {
  const written: string[] = []
  const log = createLogger('test', 'trace', { write: (line: string) => void written.push(line) })
  return {
    log,
    lines: () => written.map((line) => JSON.parse(line) as Json),
    text: () => written.join(''),
  }
}

test('D52 who sends no credential, or a wrong one, is UNAUTHENTICATED and told how to be somebody', async (t) => {
  const world = await makeWorld(t)
  for (const headers of [
    {},
    { 'x-api-key': 'clt_k_nothing' },
    { 'x-api-key': 'no key at all' },
    { authorization: 'Bearer clt_k_nothing' },
    { authorization: 'Bearer nothing' },
    { authorization: 'Basic b3duZXI6cGFzcw==' },
    { cookie: 'clutch.session_token=forged.signature' },
  ] as Record<string, string>[]) {
    const response = await world.fetch(`/v1/nodes?orgId=${orgId}`, { headers })
    const told = await json(response)
    assert.equal(response.status, 401, JSON.stringify(headers))
    assert.equal(told['code'], 'UNAUTHENTICATED')
    assert.match(String(told.data?.['next']), /ccp login|x-api-key/)
  }
})

test('rule 5 nothing of the input is judged before the caller is known', async (t) => {
  const world = await makeWorld(t)
  const response = await world.fetch('/v1/nodes', { body: { nodeId: '!' } })
  assert.equal(response.status, 401)
})

test('D45 another org and an unknown org are the same FORBIDDEN; an id of another org is NOT_FOUND', async (t) => {
  const world = await makeWorld(t)
  const acme = await world.makeOrg('acme')
  const theirs = world.client(await world.orgKey('admin', acme))
  const { node } = await theirs.compute.nodes.enroll({
    orgId: acme,
    nodeId: 'a',
    trustTier: 'secure',
  })
  const key = await world.orgKey('owner')
  const get = async (path: string): Promise<{ status: number; told: Json }> => {
    const response = await world.fetch(path, { headers: { 'x-api-key': key } })
    return { status: response.status, told: await json(response) }
  }
  const [foreign, unknown] = [await get('/v1/nodes?orgId=acme'), await get('/v1/nodes?orgId=nope')]
  assert.deepEqual([foreign.status, unknown.status], [403, 403])
  assert.equal(
    String(foreign.told['message']).replace('acme', 'nope'),
    String(unknown.told['message']),
  )
  const own = await get(`/v1/nodes/${node.id}?orgId=${orgId}`)
  assert.equal(own.status, 404)
  assert.equal(own.told['code'], 'NOT_FOUND')
})

test('D45 a role that is too little is FORBIDDEN and names the role that may', async (t) => {
  const world = await makeWorld(t)
  const member = world.client(await world.orgKey('member'))
  await assert.rejects(
    member.compute.nodes.enroll({ orgId, nodeId: 'a', trustTier: 'secure' }),
    (error: { code: string; message: string; data: Record<string, unknown> }) => {
      assert.equal(error.code, 'FORBIDDEN')
      assert.match(error.message, /compute\.nodes\.enroll needs the role admin in platform/)
      assert.deepEqual([error.data['needs'], error.data['has']], ['admin', 'member'])
      return true
    },
  )
})

test('000-67 a call without an org names it, on both wires', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('owner') }
  const rest = await world.fetch('/v1/nodes', { headers })
  assert.equal(rest.status, 400)
  assert.match(String((await json(rest))['message']), /orgId is required/)
  const rpc = await world.fetch('/rpc/compute/nodes/list', { body: { json: {} }, headers })
  assert.equal(rpc.status, 400)
  assert.match(JSON.stringify(await rpc.json()), /orgId is required/)
  for (const odd of [7, null, '', 'x'.repeat(65), { id: 'platform' }, ['platform']]) {
    const response = await world.fetch('/v1/nodes', {
      body: { orgId: odd, nodeId: 'a', trustTier: 'secure' },
      headers,
    })
    assert.equal(response.status, 400, JSON.stringify(odd))
    assert.match(String((await json(response))['message']), /orgId/)
  }
})

test('OP-6 every answer has a request id: the caller’s where it is one, else a new one', async (t) => {
  const world = await makeWorld(t)
  const given = await world.fetch('/health', { headers: { 'x-request-id': 'my-request-0001' } })
  assert.equal(given.headers.get('x-request-id'), 'my-request-0001')
  const odd = await world.fetch('/health', { headers: { 'x-request-id': 'x'.repeat(200) } })
  assert.match(odd.headers.get('x-request-id') ?? '', /^req_/)
})

test('D52 a mistake of ours is INTERNAL: logged with the request id, its message told to nobody', async (t) => {
  const { log, lines } = captured()
  const world = await makeWorld(t, {
    log,
    invoker: () => ({
      ...standInInvoker(() => undefined),
      invoke: () => Promise.reject(new Error('the secret of the house')),
    }),
  })
  const response = await world.fetch('/v1/functions/f/invoke', {
    body: { orgId },
    headers: { 'x-api-key': await world.orgKey('member') },
  })
  const text = await response.text()
  assert.equal(response.status, 500)
  assert.doesNotMatch(text, /secret of the house/)
  const requestId = response.headers.get('x-request-id') ?? ''
  assert.ok(text.includes(requestId))
  const logged = lines().filter((line) => line['level'] === 'error')
  assert.equal(logged.length, 1)
  assert.equal(logged[0]?.['requestId'], requestId)
  assert.equal(logged[0]?.['procedure'], 'compute.functions.invoke')
  assert.match(JSON.stringify(logged[0]), /secret of the house/)
})

test('an expected refusal is not logged as an error', async (t) => {
  const { log, lines } = captured()
  const world = await makeWorld(t, { log })
  const headers = { 'x-api-key': await world.orgKey('guest') }
  await world.fetch('/v1/nodes/none?orgId=platform', { headers })
  await world.fetch('/v1/nodes?orgId=other', { headers })
  await world.fetch('/v1/nodes', { body: '{', headers })
  await world.fetch('/v1/nowhere', { headers })
  assert.deepEqual(
    lines().filter((line) => ['warn', 'error', 'fatal'].includes(String(line['level']))),
    [],
  )
})

test('an answer that breaks the contract undoes what it is about, and runs nothing after it', async (t) => {
  const { log, text } = captured()
  const world = await makeWorld(t, { log })
  let later = 0
  const procedure = (answer: unknown): Procedure => ({
    meta: { role: 'guest', tx: 'one', cli: { none: 'a test' } },
    checkInput: async (value) => value,
    checkOutput: outputCheck(z.object({ count: z.number() })),
    runner: {
      kind: 'tx',
      async run(call) {
        await call.audit(call.tx, { kind: 'test.ran', subject: null })
        call.afterCommit(() => later++)
        return answer
      },
    },
  })
  const context: HttpContext = {
    engine: world.engine,
    headers: { 'x-api-key': await world.orgKey('guest') },
    requestId: 'req_test',
    ip: '127.0.0.1',
  }
  const run = (answer: unknown): Promise<unknown> =>
    runCall(procedure(answer), context, { input: { orgId }, path: ['test'], signal: undefined })
  const events = async (): Promise<number> =>
    (await world.engine.db.selectFrom('events').select('id').execute()).length
  await assert.rejects(run({ count: 'many' }), { code: 'INTERNAL' })
  assert.match(text(), /an answer breaks the contract: count:/)
  assert.deepEqual([await events(), later], [0, 0])
  assert.deepEqual(await run({ count: 1, more: 'is not told' }), { count: 1 })
  assert.deepEqual([await events(), later], [1, 1])
})

test('D51 concurrent calls with one key run once, and all answer the same', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const answers = await Promise.all(
    Array.from({ length: 8 }, () =>
      world
        .fetch('/v1/nodes', {
          body: { orgId, nodeId: 'one', trustTier: 'secure' },
          headers: { 'x-api-key': key, 'idempotency-key': 'race' },
        })
        .then(async (response) => ({ status: response.status, answer: await json(response) })),
    ),
  )
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200])
  const tokens = answers.map(({ answer }) => answer['token']).filter((token) => token !== null)
  assert.equal(tokens.length, 1, 'one answer has the token')
  const ids = new Set(answers.map(({ answer }) => (answer['node'] as { id: string }).id))
  assert.equal(ids.size, 1)
  assert.equal((await world.engine.db.selectFrom('nodes').select('id').execute()).length, 1)
})

test('D51 a call that failed gives its key back', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const headers = { 'x-api-key': key, 'idempotency-key': 'again' }
  const enroll = (): Promise<Response> =>
    world.fetch('/v1/nodes', { body: { orgId, nodeId: 'a', trustTier: 'secure' }, headers })
  const client = world.client(key)
  const { node } = await client.compute.nodes.enroll({ orgId, nodeId: 'a', trustTier: 'secure' })
  assert.equal((await enroll()).status, 409)
  await client.compute.nodes.revoke({ orgId, id: node.id })
  const made = await enroll()
  assert.equal(made.status, 200)
  assert.match(String((await json(made))['token']), /^clt_n_/)
})

test('D51 the key of one org, one procedure or one day is not that of another', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const acme = await world.makeOrg('acme')
  const enroll = async (org: string, nodeId: string): Promise<Json> =>
    json(
      await world.fetch('/v1/nodes', {
        body: { orgId: org, nodeId, trustTier: 'secure' },
        headers: { 'x-api-key': await world.orgKey('admin', org), 'idempotency-key': 'same' },
      }),
    )
  const ours = await enroll(world.platformOrgId, 'a')
  const theirs = await enroll(acme, 'a')
  assert.ok(ours['token'] && theirs['token'])
  await clock.advance(24 * 3_600_000 + 1)
  assert.equal((await prune(world.engine)).keys, 2)
  assert.ok((await enroll(world.platformOrgId, 'b'))['token'])
})

test('D51 a key that is none is refused', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  for (const bad of ['two words', 'x'.repeat(256), '']) {
    const response = await world.fetch('/v1/nodes', {
      body: { orgId, nodeId: 'a', trustTier: 'secure' },
      headers: { 'x-api-key': key, 'idempotency-key': bad },
    })
    assert.equal(response.status, 400, bad)
  }
})

type Deploying = {
  world: World
  deploy: (body?: object) => Promise<Response>
  started: () => number
  release: () => void
  /** Lets only the first go on. */
  lose: () => void
}

/** A world whose `prepare` waits until it is told to go on: then the deploy fails, as the stand-in prepares nothing. */
async function deploying(
  t: Parameters<typeof makeWorld>[0],
  clock = fakeClock(Date.now()),
): Promise<Deploying> {
  let calls = 0
  const [first, others] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const prepare: Invoker['prepare'] = async () => {
    await Promise.race([others.promise, ...(calls++ === 0 ? [first.promise] : [])])
    throw new AppError('INVALID', 'a stand-in prepares nothing')
  }
  const world = await makeWorld(t, {
    clock,
    invoker: () => ({ ...standInInvoker(() => undefined), prepare }),
  })
  const headers = { 'x-api-key': await world.orgKey('member'), 'idempotency-key': 'deploy' }
  const component = Buffer.from('0061736d0100000000', 'hex').toString('base64')
  const deploy = (body = {}): Promise<Response> =>
    world.fetch('/v1/functions', { body: { orgId, name: 'f', component, ...body }, headers })
  return { world, deploy, started: () => calls, release: others.resolve, lose: first.resolve }
}

test('D51 outside a transaction too one key runs once at a time; a failure gives it back', async (t) => {
  const { deploy, started, release } = await deploying(t)
  const first = deploy()
  await until('the first call began', () => started() === 1)
  const second = await deploy()
  assert.equal(second.status, 409)
  assert.equal((await json(second)).data?.['reason'], 'IDEMPOTENCY_IN_PROGRESS')
  const other = await deploy({ memMb: 128 })
  assert.equal((await json(other)).data?.['reason'], 'IDEMPOTENCY_KEY_REUSED')
  release()
  assert.equal((await first).status, 400)
  assert.equal(started(), 1)
  await deploy()
  assert.equal(started(), 2, 'the key was given back')
})

test('D51 an engine that starts again gives back what its former self had claimed, and of nobody else', async (t) => {
  const { world, deploy, started, release } = await deploying(t)
  const lost = deploy()
  await until('the first call began', () => started() === 1)
  assert.equal(await releaseKeysOfEngine(world.engine.db, 'eng_other'), 0)
  assert.equal((await deploy()).status, 409)
  assert.equal(await releaseKeysOfEngine(world.engine.db, world.engine.id), 1)
  const again = deploy()
  await until('the second call began', () => started() === 2)
  release()
  await Promise.all([lost, again])
})

test('D51 a claim that this engine could not give back, because the store was away, is taken over at the next call', async (t) => {
  const { world, deploy, started, release } = await deploying(t)
  const lost = deploy()
  await until('the first call began', () => started() === 1)
  assert.equal((await deploy()).status, 409, 'it is under way')
  release()
  await lost
  const key = { orgId: world.platformOrgId, procedure: 'compute.functions.deploy', key: 'deploy' }
  const row = { requestHash: Buffer.alloc(32), now: Date.now() - 1_000, engineId: world.engine.id }
  assert.equal(await claimKey(world.engine.db, key, row), undefined, 'it was given back')
  await deploy()
  assert.equal(started(), 2)
  assert.equal(world.engine.claims.size, 0)
})

test('D51 a claim whose engine died is taken over after five minutes', async (t) => {
  const clock = fakeClock(Date.now())
  const { deploy, started, release, lose } = await deploying(t, clock)
  const lost = deploy()
  await until('the first call began', () => started() === 1)
  await clock.advance(5 * 60_000)
  const takers = [deploy(), deploy()]
  await until('the second call began', () => started() === 2)
  // The one that was lost ends after all: that gives away nothing of its successor's.
  lose()
  assert.equal((await lost).status, 400)
  assert.equal((await deploy()).status, 409)
  // The other one hears so before the work ends.
  assert.equal((await Promise.race(takers)).status, 409)
  release()
  const statuses = await Promise.all(takers.map(async (taker) => String((await taker).status)))
  assert.equal(started(), 2, 'one of both took over')
  assert.deepEqual(statuses.toSorted(), ['400', '409'])
})

test('rule 5 a contract that forgets the org lets nobody in', async (t) => {
  const world = await makeWorld(t)
  const procedure: Procedure = {
    meta: { role: 'guest', tx: 'none', cli: { none: 'a test' } },
    checkInput: async (value) => value,
    checkOutput: async (value) => value,
    runner: { kind: 'free', run: async () => 'ran' },
  }
  const headers = { 'x-api-key': await world.orgKey('owner') }
  const context = { engine: world.engine, headers, requestId: 'req_test', ip: '127.0.0.1' }
  const run = (input: unknown): Promise<unknown> =>
    runCall(procedure, context, { input, path: ['test'], signal: undefined })
  await assert.rejects(run({}), { code: 'INTERNAL' })
  assert.equal(await run({ orgId }), 'ran')
})

test('AC-3 D52 a call that is too often is RATE_LIMITED and says when to come back', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock, config: { enrollsPerMinute: 1 } })
  const headers = { 'x-api-key': await world.orgKey('admin') }
  const enroll = (nodeId: string): Promise<Response> =>
    world.fetch('/v1/nodes', { body: { orgId, nodeId, trustTier: 'secure' }, headers })
  assert.equal((await enroll('a')).status, 200)
  await clock.advance(20_000)
  const refused = await enroll('b')
  assert.equal(refused.status, 429)
  assert.equal(refused.headers.get('retry-after'), '40')
  assert.equal((await json(refused)).data?.['retryAfterMs'], 40_000)
  await clock.advance(40_000)
  assert.equal((await enroll('b')).status, 200)
})

test('UNAVAILABLE store_unavailable when the store is away, and a later call works', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('guest') }
  const list = (): Promise<Response> => world.fetch(`/v1/nodes?orgId=${orgId}`, { headers })
  assert.equal((await list()).status, 200)
  const { db } = world.engine
  const working = db.transaction.bind(db)
  const away = new AppError('UNAVAILABLE', 'The database cannot be reached', {
    details: { reason: 'store_unavailable' },
  })
  db.transaction = () => {
    throw away
  }
  const refused = await list()
  assert.equal(refused.status, 503)
  assert.equal((await json(refused)).data?.['reason'], 'store_unavailable')
  db.transaction = working
  assert.equal((await list()).status, 200)
})

test('000-76 calls are counted by procedure and code', async (t) => {
  const world = await makeWorld(t)
  const client = world.client(await world.orgKey('guest'))
  await client.compute.nodes.list({ orgId })
  await client.compute.nodes.get({ orgId, id: 'none' }).catch(() => undefined)
  const text = await (await world.fetch('/metrics')).text()
  assert.match(text, /clutch_call_seconds_count\{procedure="compute.nodes.list",code="OK"\} 1/)
  assert.match(
    text,
    /clutch_call_seconds_count\{procedure="compute.nodes.get",code="NOT_FOUND"\} 1/,
  )
  assert.match(text, /clutch_http_requests_total\{route="rpc",code="404"\} 1/)
  for (const name of ['sessions', 'placements_total', 'invocations_total'])
    assert.match(text, new RegExp(`# TYPE clutch_${name} `))
})

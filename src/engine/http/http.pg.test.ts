// The HTTP side: limits, origins, pages, documents, and a clean end.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as dial, type Socket } from 'node:net'
import { test } from 'node:test'
import { contract } from '#api/contract.ts'
import { rawRoutes } from '#api/raw.ts'
import { BODY_MAX } from '#engine/http/body.ts'
import { createListener } from '#engine/http/serve.ts'
import { listenHttp } from '#engine/http/listen.ts'
import { systemClock } from '#lib/clock.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { silentLogger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import { makeWorld, type World } from '#test/world.ts'

const orgId = 'platform'
const json = async (response: Response): Promise<Record<string, unknown>> =>
  (await response.json()) as Record<string, unknown>

test('AC-3 a write with a cookie is taken from our own origin only, forms too', async (t) => {
  const world = await makeWorld(t)
  const { cookie } = await world.signUpOwner()
  const body = { orgId, nodeId: 'forged', trustTier: 'secure' }
  const enroll = (headers: Record<string, string>, origin: string | null): Promise<Response> =>
    world.fetch('/v1/nodes', { body, headers: { cookie, ...headers }, origin })
  const refused: [string, Record<string, string>, string | null][] = [
    ['another site', {}, 'http://evil.test'],
    ['a service under our own domain', {}, 'http://hello.localhost:7070'],
    ['no origin', {}, null],
    ['an opaque origin', {}, 'null'],
    ['our host on another port', {}, 'http://127.0.0.1:1'],
    ['the browser says cross-site', { 'sec-fetch-site': 'cross-site' }, world.url],
    ['the browser says same-site', { 'sec-fetch-site': 'same-site' }, world.url],
  ]
  for (const [what, headers, origin] of refused) {
    const response = await enroll(headers, origin)
    assert.equal(response.status, 403, what)
    const told = await json(response)
    assert.equal((told['data'] as { reason: string }).reason, 'FOREIGN_ORIGIN', what)
  }
  const form = await fetch(`${world.url}/v1/nodes`, {
    method: 'POST',
    body: new URLSearchParams(body),
    headers: { cookie, origin: 'http://evil.test' },
  })
  assert.equal(form.status, 403)
  const ownForm = await fetch(`${world.url}/v1/nodes`, {
    method: 'POST',
    body: new URLSearchParams(body),
    headers: { cookie, origin: world.url },
  })
  assert.equal(ownForm.status, 400, 'a form is no call')
  assert.deepEqual(await world.engine.db.selectFrom('nodes').select('id').execute(), [])
  assert.equal((await enroll({ 'sec-fetch-site': 'same-origin' }, world.url)).status, 200)
  const port = new URL(world.url).port
  const second = await world.fetch('/v1/nodes', {
    body: { ...body, nodeId: 'second' },
    headers: { cookie },
    origin: `http://localhost:${port}`,
  })
  assert.equal(second.status, 200, 'localhost is 127.0.0.1 to a browser')
})

test('AC-3 signing in and out from another site is refused', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const body = { email: owner.email, password: owner.password }
  const path = '/api/auth/sign-in/email'
  assert.equal((await world.fetch(path, { body, origin: 'http://evil.test' })).status, 403)
  const out = await world.fetch('/api/auth/sign-out', {
    method: 'POST',
    headers: { cookie: owner.cookie },
    origin: 'http://evil.test',
  })
  assert.equal(out.status, 403)
  assert.equal((await world.fetch(path, { body })).status, 200)
})

test('a call by a key needs no origin, and a foreign one is refused all the same', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('admin') }
  const body = { orgId, nodeId: 'a', trustTier: 'secure' }
  const foreign = await world.fetch('/v1/nodes', { body, headers, origin: 'http://evil.test' })
  assert.equal(foreign.status, 403)
  assert.equal((await world.fetch('/v1/nodes', { body, headers, origin: null })).status, 200)
})

test('a body over its limit is 413 TOO_LARGE, told before it is read', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('admin'), 'content-type': 'application/json' }
  const post = (path: string, size: number): Promise<Response> =>
    world.fetch(path, { body: JSON.stringify({ orgId, label: 'x'.repeat(size) }), headers })
  assert.equal((await post('/v1/nodes', BODY_MAX - 100)).status, 400)
  const large = await post('/v1/nodes', BODY_MAX)
  assert.equal(large.status, 413)
  assert.equal((await json(large))['code'], 'TOO_LARGE')
  assert.equal((await post('/v1/functions', 1024 * 1024)).status, 400, 'a deploy may be large')
  assert.equal((await post('/v1/functions', 12 * 1024 * 1024)).status, 413)
  const rpc = await world.fetch('/rpc/compute/nodes/enroll', {
    body: JSON.stringify({ json: { label: 'x'.repeat(BODY_MAX) } }),
    headers,
  })
  assert.equal(rpc.status, 413)
  assert.equal(((await json(rpc))['json'] as { code: string }).code, 'TOO_LARGE')
})

test('a big body is refused unread when nobody known sends it', async (t) => {
  const world = await makeWorld(t)
  const { hostname, port } = new URL(world.url)
  const socket = dial(Number(port), hostname)
  t.after(() => socket.destroy())
  // The head alone: an engine that waited for the body would not answer.
  socket.write(
    'POST /v1/functions/f/invoke HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10000000\r\n\r\n',
  )
  const [first] = (await once(socket, 'data')) as [Buffer]
  assert.match(first.toString(), /^HTTP\/1.1 401 /)
})

test('a chunked body without a length is cut off at its limit', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('admin')
  const chunk = Buffer.alloc(16 * 1024, 0x20)
  let sent = 0
  const body = new ReadableStream({
    pull(controller) {
      sent += chunk.length
      controller.enqueue(chunk)
    },
  })
  const response = await fetch(`${world.url}/v1/nodes`, {
    method: 'POST',
    body,
    duplex: 'half',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
  } as RequestInit)
  assert.equal(response.status, 413)
  assert.ok(sent < 8 * 1024 * 1024, `${sent} bytes were taken`)
})

test('a body that is not JSON, and one of another type, are refused with the reason', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('admin') }
  const reason = async (body: string, type: string): Promise<unknown> => {
    const response = await world.fetch('/v1/nodes', {
      body,
      headers: { ...headers, 'content-type': type },
    })
    assert.equal(response.status, 400)
    return ((await json(response))['data'] as { reason: string }).reason
  }
  assert.equal(await reason('{', 'application/json'), 'MALFORMED_JSON')
  assert.equal(await reason('{}', 'text/plain'), 'CONTENT_TYPE')
  assert.equal(await reason('[]', 'application/json'), 'INVALID_INPUT')
  assert.equal(await reason('"text"', 'application/json'), 'INVALID_INPUT')
  assert.equal(
    await reason('{"__proto__":{"orgId":"platform"}}', 'application/json'),
    'INVALID_INPUT',
  )
})

test('D51 the org of a write stands in the query or in the body', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('admin') }
  const made = await world.fetch('/v1/keys?orgId=platform', { body: { name: 'ci' }, headers })
  assert.equal(made.status, 200, await made.clone().text())
  const { key } = (await json(made)) as { key: { id: string } }
  const gone = await world.fetch(`/v1/keys/${key.id}?orgId=platform`, { method: 'DELETE', headers })
  assert.equal(gone.status, 200, await gone.text())
})

test('a path, a method and a procedure that are not there', async (t) => {
  const world = await makeWorld(t)
  const headers = { 'x-api-key': await world.orgKey('admin') }
  for (const [method, path, status] of [
    ['GET', '/nowhere', 404],
    ['GET', '/v1/nowhere', 404],
    ['PUT', '/v1/nodes', 404],
    ['POST', '/rpc/compute/nodes/nothing', 404],
    ['GET', '/rpc/compute/nodes/enroll', 400],
    ['GET', '/rpc/__proto__', 404],
    ['GET', '/assets/../pages.ts', 404],
    ['GET', '/assets/%2e%2e/pages.ts', 404],
    ['GET', '/docs/package.json', 404],
    ['DELETE', '/', 404],
  ] as const) {
    const response = await world.fetch(path, { method, headers })
    assert.equal(response.status, status, `${method} ${path}`)
    assert.match(await response.text(), /"code":"(NOT_FOUND|INVALID)"/)
  }
})

test('AC-3 pages load nothing inline and nothing from elsewhere', async (t) => {
  const world = await makeWorld(t)
  for (const path of ['/', '/sign-in', '/setup', '/invitation', '/device', '/docs']) {
    const response = await world.fetch(path)
    assert.equal(response.status, 200, path)
    const policy = response.headers.get('content-security-policy') ?? ''
    assert.match(policy, /default-src 'none'.*script-src 'self';.*frame-ancestors 'none'/)
    assert.doesNotMatch(policy, /unsafe|https?:/)
    assert.equal(response.headers.get('x-content-type-options'), 'nosniff')
    const html = await response.text()
    assert.doesNotMatch(html, /<style|style=|\son\w+=|<script(?![^>]*\ssrc=)|https?:\/\//)
    for (const [, asset = ''] of html.matchAll(/(?:src|href)="(\/(?:assets|docs)\/[^"]+)"/g)) {
      const file = await world.fetch(asset)
      assert.equal(file.status, 200, asset)
      assert.match(file.headers.get('content-type') ?? '', /javascript|css|svg/)
      await file.body?.cancel()
    }
  }
})

test('D51 the OpenAPI 3.1 document names every procedure and raw address by its own name', async (t) => {
  const world = await makeWorld(t)
  const document = (await json(await world.fetch('/openapi.json'))) as {
    openapi: string
    paths: Record<
      string,
      Record<
        string,
        {
          operationId: string
          summary?: string
          tags?: string[]
          responses: Record<string, unknown>
        }
      >
    >
  }
  assert.match(document.openapi, /^3\.1\./)
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })),
  )
  const names: string[] = []
  const walk = (part: object, path: string[]): void => {
    if ('~orpc' in part) return void names.push(path.join('.'))
    for (const [key, next] of Object.entries(part)) walk(next, [...path, key])
  }
  walk(contract, [])
  names.push(...rawRoutes.map(({ operationId }) => operationId))
  assert.deepEqual(operations.map((one) => one.operationId).toSorted(), names.toSorted())
  assert.ok(names.includes('compute.nodes.enroll'))
  for (const one of operations) {
    if (one.path !== '/fn/{org}/{name}')
      assert.match(one.path, /^\/v1\/[a-z]+(\/\{\w+\}(\/[a-z-]+)?|\/[a-z-]+)?$/, one.operationId)
    assert.ok(one.summary, one.operationId)
    for (const status of ['200', '400', '401', '403', '404', '409', '429', '500', '503'])
      assert.ok(one.responses[status], `${one.operationId} ${status}`)
  }
})

test('OP-6 /health says that it lives, /ready that it serves', async (t) => {
  const world = await makeWorld(t)
  assert.deepEqual(await json(await world.fetch('/health')), { ok: true })
  const ready = await world.fetch('/ready')
  assert.equal(ready.status, 200)
  assert.deepEqual(await json(ready), {
    ready: true,
    store: true,
    stopping: false,
    engine: world.engine.id,
    version: '0.0.0-test',
  })
  const head = await world.fetch('/ready', { method: 'HEAD' })
  assert.equal(head.status, 200)
  assert.equal(await head.text(), '')
})

for (const path of ['/metrics', '/loops'])
  test(`000-76 OP-6 ${path} is for this machine and for the platform org`, async (t) => {
    const world = await makeWorld(t, { config: { trustedProxies: ['127.0.0.1'] } })
    const acme = await world.makeOrg('acme')
    const get = async (headers: Record<string, string>): Promise<number> =>
      (await world.fetch(path, { headers })).status
    const far = { 'x-forwarded-for': '203.0.113.7' }
    const plain = await makeWorld(t)
    const untold = await plain.fetch(path, { headers: far })
    assert.equal(untold.status, 401, 'a proxy here that we were not told of')
    assert.equal(await get({}), 200)
    assert.equal(await get(far), 401)
    assert.equal(await get({ ...far, 'x-api-key': await world.orgKey('owner', acme) }), 403)
    assert.equal(await get({ ...far, 'x-api-key': await world.orgKey('guest') }), 200)
  })

test('OP-6 /loops tells what each loop did last and why one fails; /metrics says which fails', async (t) => {
  const deps = { clock: fakeClock(), log: silentLogger }
  const good = new Loop({ name: 'good', everyMs: 1_000, pass: async () => ({ swept: 3 }) }, deps)
  const pass = (): Promise<never> => Promise.reject(new Error('no room'))
  const bad = new Loop({ name: 'bad', everyMs: 1_000, pass }, deps)
  const world = await makeWorld(t, { loops: [good, bad] })
  for (const loop of [good, bad]) loop.start()
  t.after(() => Promise.all([good.stop(), bad.stop()]))
  await deps.clock.advance(0)
  assert.deepEqual(await json(await world.fetch('/loops')), {
    loops: [
      { name: 'good', passes: 1, failures: 0, lastMs: 0, last: { swept: 3 }, error: null },
      { name: 'bad', passes: 1, failures: 1, lastMs: 0, last: null, error: 'no room' },
    ],
  })
  const metrics = await (await world.fetch('/metrics')).text()
  assert.match(metrics, /^clutch_loop_failing\{loop="good"\} 0$/m)
  assert.match(metrics, /^clutch_loop_failing\{loop="bad"\} 1$/m)
})

/** Sends raw bytes and answers all that comes back until the peer ends. */
async function raw(world: World, bytes: string): Promise<string> {
  const { hostname, port } = new URL(world.url)
  const socket: Socket = dial({ host: hostname, port: Number(port), allowHalfOpen: false })
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk: string) => void (text += chunk))
  socket.write(bytes)
  await new Promise<void>((resolve) =>
    socket.once('close', () => resolve()).once('error', () => resolve()),
  )
  return text
}

test('heads that are too large, too many or malformed are refused', async (t) => {
  const world = await makeWorld(t)
  const head = (more: string): string =>
    `GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${more}\r\n`
  assert.match(await raw(world, head('')), /^HTTP\/1\.1 200 /)
  assert.match(await raw(world, head(`x-long: ${'x'.repeat(20_000)}\r\n`)), /^HTTP\/1\.1 431 /)
  assert.match(
    await raw(world, `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nhost: x\r\n\r\n`),
    /^HTTP\/1\.1 431 /,
  )
  assert.match(await raw(world, 'GET / HTTP/1.1\r\nbad header\r\n\r\n'), /^HTTP\/1\.1 400 /)
  assert.match(
    await raw(world, 'GET http://evil.test/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'),
    /^HTTP\/1\.1 400 /,
  )
  const both =
    'POST /v1/nodes HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'
  assert.match(await raw(world, both), /^HTTP\/1\.1 400 /)
})

test('OP-6 a stop takes no new connection, lets what is in flight end, and is over by its deadline', async (t) => {
  const world = await makeWorld(t)
  const { engine } = world
  let open = (): void => undefined
  const gate = new Promise<void>((resolve) => (open = resolve))
  const server = await listenHttp({ host: '127.0.0.1', port: 0 }, systemClock)
  const serve = createListener(engine, () => server.stopping())
  let arrived = 0
  server.serve((req, res, patient) => {
    arrived++
    void gate.then(() => serve(req, res, patient))
  })
  const slow = fetch(`${server.url}/health`)
  while (arrived === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  const stopped = server.stop(5_000)
  await assert.rejects(fetch(`${server.url}/health`), /fetch failed/)
  open()
  const answer = await slow
  assert.equal(answer.status, 200)
  assert.equal(answer.headers.get('connection'), 'close')
  await answer.text()
  await stopped

  const stuck = await listenHttp({ host: '127.0.0.1', port: 0 }, systemClock)
  let waiting = 0
  stuck.serve(() => void waiting++)
  const never = fetch(`${stuck.url}/health`).catch(() => 'cut off')
  while (waiting === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  await stuck.stop(50)
  assert.equal(await never, 'cut off')
})

test('a port that is taken is said so', async (t) => {
  const world = await makeWorld(t)
  const port = Number(new URL(world.url).port)
  await assert.rejects(listenHttp({ host: '127.0.0.1', port }, systemClock), {
    code: 'INVALID_STATE',
    message: `The API cannot listen on 127.0.0.1:${port}`,
  })
})

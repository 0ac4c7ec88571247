// `POST /fn/<org>/<name>` over real HTTP, with the far side played by the test: what an invocation does, when and how it
// ends.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as dial } from 'node:net'
import { test, type TestContext } from 'node:test'
import { FN_HEAD_MAX } from '#core/function/limits.ts'
import type { Invoked, Invoker, InvokeRequest } from '#engine/functions/invoker.ts'
import { TAKE_MS } from '#engine/http/fn-answer.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { type FakeClock, fakeClock } from '#lib/fake-clock.ts'
import { until } from '#lib/until.ts'
import { publicFunction } from '#store/functions/functions.ts'
import { exchange, type Exchange } from '#test/http-exchange.ts'
import { makeWorld, standInInvoker, type World } from '#test/world.ts'

type Guest = (request: InvokeRequest) => Promise<Invoked['outcome'] | void>
type Setup = {
  world: World
  key: string
  /** What the next invocations do; each answers how it ended, exit 0 unless it says. */
  guest: (guest: Guest) => void
  invoked: InvokeRequest[]
  /** Names that strangers asked for. */
  lookedUp: string[]
  post: (path?: string, headers?: Record<string, string>) => Exchange
}

/** The functions `echo` (for members) and `open` (for everybody) of the org `acme`. */
async function setup(
  t: TestContext,
  options: { clock?: FakeClock; config?: { publicInvokesPerMinute: number } } = {},
): Promise<Setup> {
  let guest: Guest = async () => undefined
  const invoked: InvokeRequest[] = []
  const lookedUp: string[] = []
  const invoker: Invoker = {
    ...standInInvoker(() => undefined),
    publicOrg: async (of) => {
      lookedUp.push(of.name)
      return (await publicFunction(world.engine.db, of))?.orgId
    },
    async invoke(request) {
      if (!['echo', 'open'].includes(request.name)) throw noSuchFunction(request.name)
      invoked.push(request)
      const outcome = (await guest(request)) ?? { kind: 'exited', exitCode: 0 }
      return {
        outcome,
        durationMs: 12.4,
        memPeakMb: 1,
        fuelUsed: 1,
        stdout: new Uint8Array(),
        stderr: new Uint8Array(),
        stdoutTruncated: false,
        stderrTruncated: false,
        node: null,
      }
    },
  }
  const world = await makeWorld(t, { invoker: () => invoker, ...options })
  const acme = await world.makeOrg('acme')
  for (const name of ['echo', 'open']) await addFunction(world, acme, name)
  const key = await world.orgKey('member', acme)
  return {
    world,
    key,
    invoked,
    lookedUp,
    guest: (next) => void (guest = next),
    post: (path = '/fn/acme/echo', headers: Record<string, string> = { 'x-api-key': key }) =>
      exchange(`${world.url}${path}`, { headers }),
  }
}

async function addFunction({ engine }: World, orgId: string, name: string): Promise<void> {
  const { db } = engine
  const [at, sha256] = [new Date(), 'ab'.repeat(32)]
  await db
    .insertInto('components')
    .values({ sha256, sizeBytes: 9, kind: 'preview1', createdAt: at })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  const id = `fn_${name}`
  await db
    .insertInto('functions')
    .values({ id, orgId, name, currentVersion: 1, lastVersion: 1, createdAt: at, updatedAt: at })
    .execute()
  await db
    .insertInto('functionVersions')
    .values({
      id: `fnv_${name}`,
      functionId: id,
      orgId,
      version: 1,
      componentSha256: sha256,
      sizeBytes: 9,
      cpuMillis: 1000,
      memMb: 64,
      allowCommunity: false,
      region: null,
      timeoutMs: 1000,
      idempotent: false,
      public: name === 'open',
      createdAt: at,
      createdBy: 'a test',
    })
    .execute()
}

const pieces = (stdin: InvokeRequest['stdin']): AsyncIterable<Uint8Array> | Uint8Array[] =>
  stdin instanceof Uint8Array ? [stdin] : stdin

const echo: Guest = async ({ stdin, onStdout }) => {
  for await (const piece of pieces(stdin)) await onStdout?.(piece)
}

const say =
  (bytes: number | string, outcome?: Invoked['outcome']): Guest =>
  async ({ onStdout }) => {
    await onStdout?.(typeof bytes === 'string' ? Buffer.from(bytes) : Buffer.alloc(bytes, 'x'))
    return outcome
  }

test('FN-9 the body is stdin, stdout the answer; nobody takes it for a page', async (t) => {
  const { post, guest, invoked, world } = await setup(t)
  guest(echo)
  const { req, head, rest } = post()
  req.end('one\ntwo\n')
  const { statusCode, headers } = await head()
  assert.equal(statusCode, 200)
  assert.equal((await rest()).toString(), 'one\ntwo\n')
  assert.equal(headers['x-clutch-exit-code'], '0')
  assert.equal(headers['x-clutch-duration-ms'], '12')
  assert.equal(headers['content-type'], 'application/octet-stream')
  assert.equal(headers['x-content-type-options'], 'nosniff')
  assert.equal(headers['content-security-policy'], 'sandbox')
  assert.equal(headers['cache-control'], 'no-store')
  assert.deepEqual([invoked[0]!.args, invoked[0]!.env, invoked[0]!.timeoutMs], [[], {}, undefined])
  // By the org's id too, and with no body at all.
  const [org] = await world.engine.db
    .selectFrom('organizations')
    .select('id')
    .where('slug', '=', 'acme')
    .execute()
  const empty = post(`/fn/${org!.id}/echo`)
  empty.req.end()
  assert.equal((await empty.head()).statusCode, 200)
  assert.equal((await empty.rest()).length, 0)
})

test('FN-9 both ways at once: the second piece is sent when the first has come back', async (t) => {
  const { post, guest } = await setup(t)
  guest(echo)
  const { req, head, read, rest, trailers } = post()
  const first = Buffer.alloc(FN_HEAD_MAX, 'a')
  req.write(first)
  assert.equal((await head()).statusCode, 200)
  assert.deepEqual(await read(first.length), first)
  for (const text of ['second', 'third']) {
    req.write(text)
    assert.equal((await read(text.length)).toString(), text)
  }
  req.end('the end')
  assert.equal((await rest()).toString(), 'the end')
  assert.equal((await head()).headers.trailer, 'x-clutch-exit-code, x-clutch-duration-ms')
  assert.deepEqual(
    { ...(await trailers()) },
    {
      'x-clutch-exit-code': '0',
      'x-clutch-duration-ms': '12',
    },
  )
})

test('FN-9 the first 64 KiB decide: below it the end gives the status, from it on the trailers', async (t) => {
  const { post, guest } = await setup(t)
  const failed = { kind: 'exited', exitCode: 3 } as const
  guest(say(FN_HEAD_MAX - 1, failed))
  const below = post()
  below.req.end()
  const { statusCode, headers } = await below.head()
  assert.equal(statusCode, 502)
  assert.deepEqual(
    [headers['x-clutch-exit-code'], headers['x-clutch-reason'], headers['content-length']],
    ['3', 'exit', String(FN_HEAD_MAX - 1)],
  )
  assert.equal((await below.rest()).length, FN_HEAD_MAX - 1)

  for (const size of [FN_HEAD_MAX, FN_HEAD_MAX + 1]) {
    guest(say(size, failed))
    const above = post()
    above.req.end()
    const told = await above.head()
    assert.equal(told.statusCode, 200)
    assert.equal(told.headers['x-clutch-exit-code'], undefined)
    // All that the guest said comes, then the body is broken off.
    assert.equal((await above.read(size)).length, size)
    await assert.rejects(above.rest(), /aborted/)
  }
  guest(say(FN_HEAD_MAX))
  const whole = post()
  whole.req.end()
  assert.equal((await whole.rest()).length, FN_HEAD_MAX)
  assert.equal((await whole.trailers())['x-clutch-exit-code'], '0')
})

test('FN-9 each end has its status, and no text of a guest forms a header', async (t) => {
  const { post, guest } = await setup(t)
  const message = `f\r\nset-cookie: a=b\u0000 ünï ${'y'.repeat(400)}`
  const ends: [Invoked['outcome'], number, string | undefined, string | undefined][] = [
    [{ kind: 'exited', exitCode: 0 }, 200, undefined, '0'],
    [{ kind: 'exited', exitCode: 255 }, 502, 'exit', '255'],
    [{ kind: 'trap', message }, 502, 'trap', undefined],
    [{ kind: 'memory', message }, 502, 'memory', undefined],
    [{ kind: 'fuel', message }, 502, 'fuel', undefined],
    [{ kind: 'timeout', message }, 504, 'timeout', undefined],
    [{ kind: 'node-lost', message }, 502, 'node-lost', undefined],
    [{ kind: 'fault', message }, 502, 'node-fault', undefined],
    [{ kind: 'no-node', message }, 503, 'no-node', undefined],
  ]
  for (const [outcome, status, reason, exitCode] of ends) {
    guest(say('said', outcome))
    const { req, head, rest } = post()
    req.end()
    const { statusCode, headers } = await head()
    assert.equal(statusCode, status, outcome.kind)
    assert.equal((await rest()).toString(), 'said')
    assert.equal(headers['x-clutch-reason'], reason)
    assert.equal(headers['x-clutch-exit-code'], exitCode)
    assert.equal(headers['retry-after'], reason === 'no-node' ? '10' : undefined)
    assert.equal(headers['set-cookie'], undefined)
    if ('message' in outcome) {
      const error = String(headers['x-clutch-error'])
      assert.match(error, /^f set-cookie: a=b n y+$/)
      assert.ok(error.length <= 200)
    }
  }
})

test('FN-9 D45 who may not invoke learns nothing of what is there; a public function is for everybody', async (t) => {
  const { world, key, guest, invoked, post } = await setup(t)
  guest(say('hello'))
  const other = await world.orgKey('owner', await world.makeOrg('other'))
  const guestKey = await world.orgKey('guest', invoked.length === 0 ? await orgOf(world) : '')
  const keyed = (secret: string): Record<string, string> => ({ 'x-api-key': secret })
  const asked = async (path: string, headers: Record<string, string>): Promise<string> => {
    const { req, head, rest } = post(path, headers)
    req.end()
    const { statusCode } = await head()
    const body = (await rest()).toString()
    return statusCode === 200 ? `200 ${body}` : `${statusCode} ${toldOf(body, path)}`
  }
  const places = ['/fn/acme/echo', '/fn/acme/nothing', '/fn/nowhere/echo']
  const answers = async (headers: Record<string, string>): Promise<string[]> =>
    Promise.all(places.map((path) => asked(path, headers)))
  const [nobody] = await answers({})
  assert.match(nobody!, /^401 .*NO_CREDENTIAL/)
  assert.deepEqual(new Set(await answers({})), new Set([nobody]))
  const [foreign] = await answers(keyed(other))
  assert.match(foreign!, /^403 .*NOT_A_MEMBER/)
  assert.deepEqual(new Set(await answers(keyed(other))), new Set([foreign]))
  assert.match(await asked('/fn/acme/echo', keyed('clt_o_wrong')), /^401/)
  assert.match(await asked('/fn/acme/echo', keyed(guestKey)), /^403 .*ROLE/)
  assert.match(await asked('/fn/acme/nothing', keyed(key)), /^404 .*NO_SUCH_FUNCTION/)
  assert.equal(invoked.length, 0)
  for (const headers of [{}, keyed(other), keyed(guestKey), keyed('clt_o_wrong'), keyed(key)])
    assert.equal(await asked('/fn/acme/open', headers), '200 hello')
})

/** The answer without what differs by its address. */
const toldOf = (body: string, path: string): string =>
  path.split('/').reduce((text, part) => (part === '' ? text : text.replaceAll(part, '*')), body)

async function orgOf({ engine }: World): Promise<string> {
  const row = await engine.db
    .selectFrom('organizations')
    .select('id')
    .where('slug', '=', 'acme')
    .executeTakeFirstOrThrow()
  return row.id
}

test('FN-9 AC-3 a caller by cookie comes from our own pages; one without a cookie from anywhere', async (t) => {
  const { world, guest, invoked, post } = await setup(t)
  guest(say('hello'))
  const { cookie } = await world.signUpOwner()
  const status = async (path: string, headers: Record<string, string>): Promise<number> => {
    const { req, head, rest } = post(path, headers)
    req.end()
    await rest()
    return (await head()).statusCode ?? 0
  }
  for (const path of ['/fn/platform/echo', '/fn/acme/open'])
    for (const foreign of [
      { cookie },
      { cookie, origin: 'http://evil.test' },
      { cookie, origin: 'null' },
      { cookie, origin: world.url, 'sec-fetch-site': 'same-site' },
    ])
      assert.equal(await status(path, foreign), 403, JSON.stringify(foreign))
  assert.equal(invoked.length, 0)
  assert.equal(await status('/fn/platform/echo', { cookie, origin: world.url }), 200)
  assert.equal(await status('/fn/acme/open', { origin: 'http://elsewhere.test' }), 200)
})

test('FN-9 other methods are refused with the one there is; another depth is no address', async (t) => {
  const { world } = await setup(t)
  for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS']) {
    const response = await fetch(`${world.url}/fn/acme/open`, { method })
    assert.equal(response.status, 405, method)
    assert.equal(response.headers.get('allow'), 'POST')
    const text = await response.text()
    if (method !== 'HEAD') assert.equal(JSON.parse(text).code, 'INVALID')
  }
  for (const path of ['/fn/acme', '/fn/acme/', '/fn/acme/open/', '/fn/acme/open/more', '/fn//open'])
    assert.equal((await fetch(`${world.url}${path}`, { method: 'POST' })).status, 404, path)
})

test('FN-9 refusals before the guest are told as everywhere: rate, quota, a store that is away', async (t) => {
  const { post, guest, world, key } = await setup(t)
  const refusals = [
    new AppError('QUOTA_EXCEEDED', 'too many at once', { details: { reason: 'INVOCATIONS' } }),
    new AppError('UNAVAILABLE', 'away', { details: { reason: 'store_unavailable' } }),
  ]
  for (const refusal of refusals) {
    guest(() => Promise.reject(refusal))
    const { req, head, rest } = post()
    req.end('x')
    assert.equal((await head()).statusCode, refusal.code === 'UNAVAILABLE' ? 503 : 429)
    assert.equal(JSON.parse((await rest()).toString()).data.reason, refusal.details.reason)
    assert.equal((await head()).headers['content-type'], 'application/json')
    assert.equal((await head()).headers['content-security-policy'], 'sandbox')
  }
  world.engine.rateLimit.take = () => 1_500
  for (const headers of [{ 'x-api-key': key }, {}]) {
    const { req, head } = post('/fn/acme/open', headers as Record<string, string>)
    req.end()
    assert.equal((await head()).statusCode, 429)
    assert.equal((await head()).headers['retry-after'], '2')
  }
})

test('FN-9 AC-3 strangers call on the account of their address, not of the org, before anything is looked up', async (t) => {
  const config = { publicInvokesPerMinute: 2 }
  const { post, key, lookedUp } = await setup(t, { clock: fakeClock(), config })
  const status = async (path: string, headers: Record<string, string>): Promise<number> => {
    const { req, head, rest } = post(path, headers)
    req.end()
    await rest()
    return (await head()).statusCode ?? 0
  }
  const codes: number[] = []
  for (const name of ['open', 'nothing', 'open', 'nothing', 'x'.repeat(64)])
    codes.push(await status(`/fn/acme/${name}`, {}))
  codes.push(await status('/fn/acme/open', { 'x-api-key': 'clt_o_wrong' }))
  assert.deepEqual(codes, [200, 401, 429, 429, 429, 429])
  assert.deepEqual(lookedUp, ['open', 'nothing'])
  for (let i = 0; i < 4; i++) assert.equal(await status('/fn/acme/open', { 'x-api-key': key }), 200)
})

test('FN-9 a client that goes away cancels its invocation, before an answer and in the middle of one', async (t) => {
  const { post, guest, invoked } = await setup(t)
  for (const said of [0, FN_HEAD_MAX]) {
    const ended = Promise.withResolvers<void>()
    guest(async ({ signal, onStdout }) => {
      await onStdout?.(Buffer.alloc(said))
      if (!signal.aborted) await once(signal, 'abort')
      ended.resolve()
      return { kind: 'cancelled' }
    })
    const { req, head } = post()
    req.write('some')
    if (said > 0) await head()
    else await until('the guest runs', () => invoked.length === 1)
    req.destroy()
    await ended.promise
  }
})

test('FN-9 a guest that leaves its stdin unread still answers, and the connection lives on when the client ends', async (t) => {
  const { world, key, guest } = await setup(t)
  guest(say('enough'))
  const socket = dial(Number(new URL(world.url).port), '127.0.0.1')
  t.after(async () => void socket.destroy())
  let heard = ''
  socket.on('data', (bytes: Buffer) => (heard += bytes.toString()))
  const size = 4 * 1024 * 1024
  const head = `POST /fn/acme/echo HTTP/1.1\r\nhost: a\r\nx-api-key: ${key}\r\ncontent-length: ${size}\r\n\r\n`
  socket.write(head)
  socket.write(Buffer.alloc(100_000))
  await until('the answer', () => heard.endsWith('enough'))
  assert.match(heard, /^HTTP\/1\.1 200 OK\r\n/)
  heard = ''
  socket.write(Buffer.alloc(size - 100_000))
  socket.write(`POST /fn/acme/echo HTTP/1.1\r\nhost: a\r\nx-api-key: ${key}\r\n\r\n`)
  await until('the next answer', () => heard.endsWith('enough'))
})

test('FN-9 a slow reader holds the guest back, not memory', async (t) => {
  const { post, guest } = await setup(t)
  const total = 100 * 1024 * 1024
  const piece = Buffer.alloc(64 * 1024, 'z')
  let sent = 0
  guest(async ({ onStdout }) => {
    for (; sent < total; sent += piece.length) await onStdout?.(piece)
  })
  const { req, head } = post()
  req.end()
  const res = await head()
  // Nothing is read: what was sent is what fits into the connection's buffers, which the kernel bounds.
  let before = -1
  await until('the guest stands still', async () => {
    const still = sent === before
    before = sent
    await new Promise((resolve) => setTimeout(resolve, 100))
    return still && sent === before
  })
  assert.ok(sent < 32 * 1024 * 1024, `${sent} bytes were taken`)
  let [size, ahead] = [0, 0]
  for await (const bytes of res) {
    size += (bytes as Buffer).length
    ahead = Math.max(ahead, sent - size)
  }
  assert.equal(size, total)
  assert.ok(ahead < 32 * 1024 * 1024, `${ahead} bytes were under way`)
})

test('FN-9 a client that never reads loses its connection, and its invocation is cancelled', async (t) => {
  const clock = fakeClock()
  const { world, guest, key } = await setup(t, { clock })
  const ended = Promise.withResolvers<void>()
  let pieces = 0
  guest(async ({ onStdout, signal }) => {
    for (; !signal.aborted; pieces++) await onStdout?.(Buffer.alloc(64 * 1024))
    ended.resolve()
    return { kind: 'cancelled' }
  })
  const socket = dial(Number(new URL(world.url).port), '127.0.0.1')
  t.after(async () => void socket.destroy())
  socket.on('error', () => undefined)
  socket.pause()
  socket.write(`POST /fn/acme/echo HTTP/1.1\r\nhost: a\r\nx-api-key: ${key}\r\n\r\n`)
  let before = -1
  await until('the guest stands still', async () => {
    const still = pieces > 0 && pieces === before
    before = pieces
    await systemClock.sleep(100)
    return still && pieces === before
  })
  await clock.advance(TAKE_MS - 1)
  assert.equal(pieces, before)
  await clock.advance(1)
  await ended.promise
})

test('FN-9 a long stdin streams through: at most a few pieces of it are held', async (t) => {
  const { post, guest } = await setup(t)
  const total = 256 * 1024 * 1024
  let [written, read, ahead] = [0, 0, 0]
  guest(async ({ stdin, onStdout }) => {
    for await (const piece of pieces(stdin)) {
      read += piece.length
      ahead = Math.max(ahead, written - read)
    }
    await onStdout?.(Buffer.from(String(read)))
  })
  const { req, rest } = post()
  const piece = Buffer.alloc(256 * 1024)
  for (; written < total; written += piece.length) if (!req.write(piece)) await once(req, 'drain')
  req.end()
  assert.equal((await rest()).toString(), String(total))
  assert.ok(ahead < 32 * 1024 * 1024, `${ahead} bytes were under way`)
})

test('FN-9 a client that asks before it sends is told to go on', async (t) => {
  const { post, guest, key } = await setup(t)
  guest(echo)
  const headers = { 'x-api-key': key, expect: '100-continue', 'content-length': '100000' }
  const { req, rest } = post('/fn/acme/echo', headers)
  req.flushHeaders()
  await once(req, 'continue')
  req.end(Buffer.alloc(100_000, 'c'))
  assert.equal((await rest()).length, 100_000)
})

test('FN-9 AC-2 a client that asks before it sends hears a refusal instead', async (t) => {
  const { post } = await setup(t)
  const headers = { expect: '100-continue', 'content-length': '100000' }
  const { req, head } = post('/fn/acme/echo', headers)
  req.once('continue', () => assert.fail('it was told to go on'))
  req.flushHeaders()
  assert.equal((await head()).statusCode, 401)
  req.destroy()
})

test('FN-9 HTTP/1.0: no trailers; the end of the connection is the end of a whole body', async (t) => {
  const { world, guest, key } = await setup(t)
  const ask = async (): Promise<{ text: string; error: Error | undefined }> => {
    const socket = dial(Number(new URL(world.url).port), '127.0.0.1')
    let [text, error]: [string, Error | undefined] = ['', undefined]
    socket.on('data', (bytes: Buffer) => (text += bytes.toString('latin1')))
    socket.on('error', (caught: Error) => (error = caught))
    socket.write(`POST /fn/acme/echo HTTP/1.0\r\nx-api-key: ${key}\r\n\r\n`)
    await new Promise((resolve) => socket.on('close', resolve))
    return { text, error }
  }
  guest(say(FN_HEAD_MAX))
  const whole = await ask()
  assert.equal(whole.error, undefined)
  assert.match(whole.text, /^HTTP\/1\.1 200 OK\r\n/)
  assert.doesNotMatch(whole.text, /trailer|chunked/i)
  assert.ok(whole.text.endsWith('x'.repeat(FN_HEAD_MAX)))
  guest(say(FN_HEAD_MAX, { kind: 'trap', message: 'unreachable' }))
  assert.match(String((await ask()).error), /ECONNRESET/)
})

test('FN-9 a stranger hears that no node could, not which nodes there are and what is free', async (t) => {
  const { post, guest, key } = await setup(t)
  const message = 'the only node, node-a1, cannot: 1700 of 2000 are free'
  guest(async () => ({ kind: 'no-node', message }))
  const said = async (headers: Record<string, string>): Promise<unknown> => {
    const { req, head } = post('/fn/acme/open', headers)
    req.end()
    return (await head()).headers['x-clutch-error']
  }
  assert.equal(await said({}), 'no node can run this now')
  assert.equal(await said({ 'x-api-key': key }), message)
})

test('FN-9 D51 an Idempotency-Key is refused: a stream is not kept', async (t) => {
  const { world, key, invoked } = await setup(t)
  const headers = { 'x-api-key': key, 'idempotency-key': 'k1' }
  const response = await fetch(`${world.url}/fn/acme/echo`, { method: 'POST', headers, body: 'x' })
  assert.equal(response.status, 400)
  assert.match(await response.text(), /NO_IDEMPOTENCY_KEY.*functions\/\{name\}\/invoke/)
  assert.equal(invoked.length, 0)
})

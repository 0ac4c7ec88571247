// `POST /v1/components` over real HTTP, and what can be deployed of it.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { UPLOAD_BYTES_MAX, UPLOAD_KEPT_MS, UPLOADS_KEPT_MAX } from '#core/function/limits.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { PROGRESS_MS } from '#engine/http/upload.ts'
import { pruneFunctions } from '#engine/loops/history-prune.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { fakeClock, type FakeClock } from '#lib/fake-clock.ts'
import { until } from '#lib/until.ts'
import { exchange, type Exchange } from '#test/http-exchange.ts'
import { ScriptedNodes } from '#test/scripted-nodes.ts'
import { makeWorld, type World } from '#test/world.ts'

const wordCount = readFileSync(
  join(import.meta.dirname, '../../../examples/word-count/word-count.wasm'),
)
const PREAMBLE = Buffer.from('0061736d01000000', 'hex')
const OCTETS = { 'content-type': 'application/octet-stream' }

type Setup = {
  world: World
  clock: FakeClock
  key: string
  open: (headers?: Record<string, string>, query?: string) => Exchange
  send: (
    bytes: Uint8Array | string,
    headers?: Record<string, string>,
    query?: string,
  ) => Promise<{ status: number; body: Told }>
}
type Told = {
  sha256?: string
  sizeBytes?: number
  code?: string
  message?: string
  data?: { reason?: string; field?: string; next?: string }
}

async function setup(t: TestContext): Promise<Setup> {
  const clock = fakeClock()
  const world = await makeWorld(t, {
    clock,
    config: { deploysPerMinute: 10_000 },
    gateway: () => new ScriptedNodes(),
    invoker: (engine) => createInvoker(engine),
  })
  t.after(() => world.engine.invoker.stop())
  const acme = await world.makeOrg('acme')
  const key = await world.orgKey('member', acme)
  const open: Setup['open'] = (headers = { 'x-api-key': key }, query = '?orgId=acme') =>
    exchange(`${world.url}/v1/components${query}`, { headers: { ...OCTETS, ...headers } })
  return {
    world,
    clock,
    key,
    open,
    async send(bytes, headers, query) {
      const { req, head, rest } = open(headers, query)
      req.end(bytes)
      const { statusCode = 0 } = await head()
      return { status: statusCode, body: JSON.parse((await rest()).toString()) as Told }
    },
  }
}

/** Counts of rows, and of files in the blob store, that an upload may leave. */
async function traces({ engine }: World): Promise<number[]> {
  const tables = ['components', 'componentUploads'] as const
  const rows = await Promise.all(
    tables.map(async (table) => (await engine.db.selectFrom(table).selectAll().execute()).length),
  )
  return [...rows, await blobsOf(engine.blobs)]
}

/** How many of the hashes that these tests could have stored are there. */
async function blobsOf(blobs: World['engine']['blobs']): Promise<number> {
  let found = 0
  for (const sha256 of made) if (await blobs.has(sha256)) found++
  return found
}
const made = new Set([sha256Hex(wordCount)])

test('FN-1 bytes that were sent ahead are deployed by their hash, and are the version’s from then on', async (t) => {
  const { world, send, key } = await setup(t)
  const sent = await send(wordCount)
  assert.deepEqual(sent, {
    status: 200,
    body: { sha256: sha256Hex(wordCount), sizeBytes: wordCount.length },
  })
  assert.deepEqual((await send(wordCount)).body, sent.body, 'again is the same')
  const { functions } = world.client(key).compute
  const deployment = { orgId: 'acme', componentSha256: sent.body.sha256!, fuelMax: 5_000_000 }
  const { function: made } = await functions.deploy({ ...deployment, name: 'word-count' })
  assert.deepEqual(
    [made.sha256, made.size_bytes, made.fuel_max],
    [sent.body.sha256, wordCount.length, 5_000_000],
  )
  assert.deepEqual(await traces(world), [1, 0, 1])
  // The version is a right to the bytes, too.
  await functions.deploy({ ...deployment, name: 'again' })
  assert.equal((await functions.get({ orgId: 'acme', name: 'again' })).function.version, 1)
})

test('FN-1 a hash is no right to what it names', async (t) => {
  const { world, send } = await setup(t)
  const { sha256 = '' } = (await send(wordCount)).body
  const other = world.client(await world.orgKey('owner', await world.makeOrg('other')))
  const refusal = async (componentSha256: string): Promise<Told> =>
    other.compute.functions.deploy({ orgId: 'other', name: 'stolen', componentSha256 }).then(
      () => assert.fail('deployed'),
      (error: unknown) => error as Told,
    )
  const known = await refusal(sha256)
  assert.equal(known.code, 'NOT_FOUND')
  assert.equal(known.data?.reason, 'NO_SUCH_COMPONENT')
  assert.match(known.data?.next ?? '', /POST \/v1\/components/)
  const unknown = await refusal('0'.repeat(64))
  assert.deepEqual(
    [unknown.code, unknown.message, unknown.data],
    [known.code, known.message?.replace(sha256, '0'.repeat(64)), known.data],
  )
})

test('FN-1 one of component and componentSha256, told beside what else is wrong', async (t) => {
  const { world, key } = await setup(t)
  const { functions } = world.client(key).compute
  const faults = async (input: object): Promise<string[]> =>
    functions.deploy({ orgId: 'acme', name: 'f', ...input }).then(
      () => assert.fail('deployed'),
      (error: { data: { fields: { field: string }[] } }) =>
        error.data.fields.map(({ field }) => field),
    )
  assert.deepEqual(await faults({}), ['component'])
  assert.deepEqual(await faults({ component: 'AA==', componentSha256: 'a'.repeat(64) }), [
    'component',
  ])
  assert.deepEqual((await faults({ cpuMillis: 99, fuelMax: 0 })).toSorted(), [
    'component',
    'cpuMillis',
    'fuelMax',
  ])
  for (const componentSha256 of ['', 'A'.repeat(64), 'a'.repeat(63), `${'a'.repeat(64)}\n`, null])
    assert.deepEqual(await faults({ componentSha256 }), ['componentSha256'], `${componentSha256}`)
  for (const fuelMax of [0, -1, 1.5, 2 ** 53, '5', '', null])
    assert.deepEqual(await faults({ fuelMax, component: 'AA==' }), ['fuelMax'], `${fuelMax}`)
})

test('000-51 FN-1 what is no WASM is refused at its first bytes, and nothing is stored', async (t) => {
  const { world, send, open } = await setup(t)
  const refused: [Uint8Array | string, string][] = [
    ['hello, I am a text file', 'BAD_MAGIC'],
    [PREAMBLE.subarray(0, 7), 'TOO_SHORT'],
    ['', 'TOO_SHORT'],
    [Buffer.from('0061736d02000000', 'hex'), 'BAD_VERSION'],
  ]
  for (const [bytes, reason] of refused) {
    const { status, body } = await send(bytes)
    assert.deepEqual([status, body.code, body.data?.reason], [400, 'INVALID', reason])
  }
  // Byte by byte, and the refusal comes before the rest is sent.
  const { req, head } = open()
  for (const byte of 'no wasm at all') req.write(byte)
  assert.equal((await head()).statusCode, 400)
  assert.deepEqual(await traces(world), [0, 0, 0])
})

test('FN-1 64 MiB and no byte more, however the length is told', async (t) => {
  const { world, send, open } = await setup(t)
  const piece = Buffer.alloc(1024 * 1024)
  const declared = open({
    'content-length': String(UPLOAD_BYTES_MAX + 1),
    'x-api-key': await keyOf(world),
  })
  declared.req.flushHeaders()
  assert.equal((await declared.head()).statusCode, 413, 'before a byte was sent')
  const pour = async (bytes: number): Promise<{ status: number; body: Told }> => {
    const { req, head, rest } = open()
    req.write(PREAMBLE)
    for (let left = bytes - PREAMBLE.length; left > 0 && !req.destroyed; left -= piece.length)
      if (!req.write(piece.subarray(0, left))) await Promise.race([once(req, 'drain'), head()])
    req.end()
    return { status: (await head()).statusCode ?? 0, body: JSON.parse((await rest()).toString()) }
  }
  const over = await pour(UPLOAD_BYTES_MAX + 1)
  assert.deepEqual([over.status, over.body.data?.reason], [413, 'COMPONENT_TOO_LARGE'])
  assert.deepEqual(await traces(world), [0, 0, 0])
  const all = await pour(UPLOAD_BYTES_MAX)
  assert.deepEqual([all.status, all.body.sizeBytes], [200, UPLOAD_BYTES_MAX])
  assert.ok(await world.engine.blobs.has(all.body.sha256!))
  assert.equal((await send(wordCount)).status, 200)
})

const keyOf = async (world: World): Promise<string> => {
  const org = await world.engine.db
    .selectFrom('organizations')
    .select('id')
    .where('slug', '=', 'acme')
    .executeTakeFirstOrThrow()
  return world.orgKey('member', org.id)
}

test('AC-2 D45 only who may deploy there sends, and hears so before sending', async (t) => {
  const { world, open, key } = await setup(t)
  const acme = await world.engine.db
    .selectFrom('organizations')
    .select('id')
    .where('slug', '=', 'acme')
    .executeTakeFirstOrThrow()
  const { cookie } = await world.signUpOwner()
  const keyed = async (...of: Parameters<World['orgKey']>): Promise<Record<string, string>> => ({
    'x-api-key': await world.orgKey(...of),
  })
  const cases: [Record<string, string>, string, number, string][] = [
    [{}, '?orgId=acme', 401, 'NO_CREDENTIAL'],
    [{ 'x-api-key': 'clt_o_wrong' }, '?orgId=acme', 401, 'API_KEY_INVALID'],
    [await keyed('guest', acme.id), '?orgId=acme', 403, 'ROLE'],
    [await keyed('owner'), '?orgId=acme', 403, 'NOT_A_MEMBER'],
    [{ 'x-api-key': key }, '?orgId=nowhere', 403, 'NOT_A_MEMBER'],
    [{ 'x-api-key': key }, '', 400, 'INVALID_INPUT'],
    [{ 'x-api-key': key }, '?orgId=', 400, 'INVALID_INPUT'],
    [{ 'x-api-key': key }, '?orgId=%00', 400, 'INVALID_INPUT'],
    [{ cookie }, '?orgId=platform', 403, 'FOREIGN_ORIGIN'],
    [{ cookie, origin: 'http://evil.test' }, '?orgId=platform', 403, 'FOREIGN_ORIGIN'],
    [{ 'x-api-key': key, 'content-type': 'text/plain' }, '?orgId=acme', 400, 'CONTENT_TYPE'],
    [{ 'x-api-key': key, 'content-type': 'application/json' }, '?orgId=acme', 400, 'CONTENT_TYPE'],
  ]
  for (const [headers, query, status, reason] of cases) {
    // The body never comes.
    const { req, head, rest } = open({ 'content-length': '9', ...headers }, query)
    req.flushHeaders()
    assert.equal((await head()).statusCode, status, reason)
    const answer = rest()
    req.end('too late.')
    assert.equal((JSON.parse((await answer).toString()) as Told).data?.reason, reason)
  }
  assert.deepEqual(await traces(world), [0, 0, 0])
  const response = await fetch(`${world.url}/v1/components?orgId=acme`)
  assert.deepEqual([response.status, response.headers.get('allow')], [405, 'POST'])
  const ours = open({ cookie, origin: world.url }, '?orgId=platform')
  ours.req.end(wordCount)
  assert.equal((await ours.head()).statusCode, 200)
})

test('FN-1 two at a time, one of an organization: the third waits unread, a stalled one loses its place and leaves nothing', async (t) => {
  const { world, clock, open } = await setup(t)
  const other = await world.orgKey('member', await world.makeOrg('other'))
  const stalled = [open(), open({ 'x-api-key': other }, '?orgId=other')]
  for (const { req } of stalled) req.write(PREAMBLE)
  const drafts = (): number => arriving(world)
  await until('both arrive', () => drafts() === 2)
  const third = open()
  third.req.end(wordCount)
  let answered = false
  void third.head().then(() => (answered = true))
  await until('the third waits', () => clock.pending() >= 5)
  assert.equal(answered, false)
  assert.equal(drafts(), 2)
  // Its patience is shorter than that with those who send nothing.
  await clock.advance(10_000)
  assert.equal((await third.head()).statusCode, 503)
  assert.equal((await third.head()).headers['retry-after'], '7')
  await clock.advance(PROGRESS_MS)
  for (const { head, rest } of stalled) {
    assert.equal((await head()).statusCode, 400)
    assert.equal((JSON.parse((await rest()).toString()) as Told).data?.reason, 'UPLOAD_STALLED')
  }
  await until('nothing is left', () => drafts() === 0)
  assert.deepEqual(await traces(world), [0, 0, 0])
  const after = open()
  after.req.end(wordCount)
  assert.equal((await after.head()).statusCode, 200)
})

test('FN-1 an org with an upload under way waits with its next, and another goes beside it', async (t) => {
  const { world, open, send } = await setup(t)
  const other = await world.orgKey('member', await world.makeOrg('other'))
  const slow = open()
  slow.req.write(PREAMBLE)
  await until('it arrives', () => arriving(world) === 1)
  const next = send(wordCount)
  assert.equal((await send(wordCount, { 'x-api-key': other }, '?orgId=other')).status, 200)
  slow.req.end()
  assert.equal((await slow.head()).statusCode, 200)
  assert.equal((await next).status, 200)
})

test('FN-1 a disk of ours that is slow is not the client’s stalling, but the whole has its time', async (t) => {
  const { world, clock, send, open } = await setup(t)
  const { blobs } = world.engine
  const put = blobs.put.bind(blobs)
  const go = Promise.withResolvers<void>()
  let asked = false
  blobs.put = async (source) => {
    asked = true
    await go.promise
    return put(source)
  }
  const sent = send(wordCount)
  await until('the disk is asked', () => asked)
  await clock.advance(3 * PROGRESS_MS)
  go.resolve()
  assert.equal((await sent).status, 200)
  // A MiB in each 25 seconds, for ever.
  const { req, head, rest } = open()
  req.write(PREAMBLE)
  let answered = false
  void head().then(() => (answered = true))
  const draft = (): number => arrivingBytes(world)
  for (let mib = 1; mib <= 24; mib++) {
    req.write(Buffer.alloc(1024 * 1024))
    await until('it is there', () => answered || draft() >= mib * 1024 * 1024)
    assert.equal(answered, false, `${mib}`)
    await clock.advance(25_000)
  }
  assert.equal((await head()).statusCode, 400)
  assert.equal((JSON.parse((await rest()).toString()) as Told).data?.reason, 'UPLOAD_STALLED')
})

const arrivingBytes = (world: World): number => {
  const folder = join(world.blobsFolder, 'arriving')
  const [name] = readdirSync(folder)
  return name === undefined ? 0 : statSync(join(folder, name)).size
}

/** Drafts of the blob store: what has not arrived whole. */
const arriving = (world: World): number => readdirSync(join(world.blobsFolder, 'arriving')).length

test('FN-1 a client that goes away in the middle leaves nothing', async (t) => {
  const { world, open } = await setup(t)
  const { req } = open()
  req.write(PREAMBLE)
  req.write(Buffer.alloc(1024 * 1024))
  await until('it arrives', () => arriving(world) === 1)
  req.destroy()
  await until('nothing is left', () => arriving(world) === 0)
  assert.deepEqual(await traces(world), [0, 0, 0])
})

test('FN-1 what nobody deployed is dropped after a day with its bytes; what a version uses stays', async (t) => {
  const { world, clock, send, key } = await setup(t)
  const other = Buffer.concat([PREAMBLE, Buffer.from('for nobody')])
  made.add(sha256Hex(other))
  for (const bytes of [wordCount, other]) assert.equal((await send(bytes)).status, 200)
  const { functions } = world.client(key).compute
  await functions.deploy({ orgId: 'acme', name: 'f', componentSha256: sha256Hex(wordCount) })
  const { engine } = world
  await clock.advance(UPLOAD_KEPT_MS - 1)
  assert.equal((await pruneFunctions(engine, [])).uploads, 0)
  assert.deepEqual(await traces(world), [2, 1, 2])
  await clock.advance(2)
  const first = await pruneFunctions(engine, [])
  assert.deepEqual([first.uploads, first.unused], [1, [sha256Hex(other)]])
  await pruneFunctions(engine, first.unused)
  assert.deepEqual(await traces(world), [1, 0, 1])
})

test('FN-1 of an org the newest that it did not deploy are kept', async (t) => {
  const { world, clock, send } = await setup(t)
  const hashes: string[] = []
  const otherId = await world.makeOrg('other')
  const other = { 'x-api-key': await world.orgKey('member', otherId) }
  await send(Buffer.concat([PREAMBLE, Buffer.from('0')]), other, '?orgId=other')
  for (let n = 0; n < UPLOADS_KEPT_MAX + 2; n++) {
    await clock.advance(1_000)
    const { status, body } = await send(Buffer.concat([PREAMBLE, Buffer.from(`${n}`)]))
    assert.equal(status, 200)
    hashes.push(body.sha256 ?? '')
  }
  const rows = await world.engine.db
    .selectFrom('componentUploads')
    .select('sha256')
    .where('orgId', '<>', otherId)
    .orderBy('createdAt')
    .execute()
  assert.deepEqual(
    rows.map(({ sha256 }) => sha256),
    hashes.slice(2),
  )
  // The bytes of the others are gone with them, unless somebody else sent them, too.
  const { blobs } = world.engine
  const there = await Promise.all(hashes.slice(0, 4).map((sha256) => blobs.has(sha256)))
  assert.deepEqual(there, [true, false, true, true])
})

// compute.functions.* through the kernel, with the real preparer and the examples' components.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { sha256Hex } from '#lib/bytes.ts'
import { COMPONENT_INLINE_MAX } from '#core/function/limits.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { makeWorld, ORG, type Client, type World } from '#test/world.ts'
import { ScriptedNodes } from '#test/scripted-nodes.ts'

const EXAMPLES = join(import.meta.dirname, '../../../../examples')
const example = (name: string): Buffer => readFileSync(join(EXAMPLES, name))
const wordCount = example('word-count/word-count.wasm')
const preview1 = example('word-count/word-count.core.wasm')

const hex = (...parts: string[]): Buffer => Buffer.from(parts.join('').replaceAll(' ', ''), 'hex')
const PREAMBLE = '0061736d 01000000'
const TYPE = '01 04 01 60 00 00'
const FUNC = '03 02 01 00'
const CODE = '0a 04 01 02 00 0b'
/** (module (import "env" "f" (func)) (func (export "_start"))) */
const importing = hex(
  PREAMBLE,
  TYPE,
  '02 09 01 03 656e76 01 66 00 00',
  FUNC,
  '07 0a 01 06 5f7374617274 00 01',
  CODE,
)
/** (module (memory (export "memory") 512) (func (export "_start"))): 32 MiB at least. */
const large = hex(
  PREAMBLE,
  TYPE,
  FUNC,
  '05 04 01 00 8004',
  '07 13 02 06 5f7374617274 00 00 06 6d656d6f7279 02 00',
  CODE,
)
/** (module (func (export "main"))): nothing to run. */
const library = hex(PREAMBLE, TYPE, FUNC, '07 08 01 04 6d61696e 00 00', CODE)

type Setup = { world: World; functions: Client['compute']['functions']; client: Client }

async function setup(t: TestContext): Promise<Setup> {
  const nodes = new ScriptedNodes()
  const world = await makeWorld(t, {
    gateway: () => nodes,
    invoker: (engine) => createInvoker(engine),
  })
  t.after(() => world.engine.invoker.stop())
  const client = world.client(await world.orgKey('member'))
  return { world, client, functions: client.compute.functions }
}

const deployment = (over: object = {}) => ({
  orgId: ORG,
  name: 'word-count',
  component: wordCount.toString('base64'),
  ...over,
})

type Refusal = { code: string; message: string; data?: { reason?: string; field?: string } }

/** A call that must be refused: its code, and what the message must say. */
async function refused(call: Promise<unknown>, code: string, says: RegExp): Promise<Refusal> {
  const error = await call.then(
    () => undefined,
    (caught: unknown) => caught as Refusal,
  )
  assert.ok(error, `not refused; wanted ${code} ${says}`)
  assert.equal(error.code, code, error.message)
  assert.match(error.message, says)
  return error
}

/** Counts of everything that a deploy may leave. */
async function traces({ engine }: World): Promise<number[]> {
  const tables = ['components', 'artifacts', 'functions', 'functionVersions', 'events'] as const
  return Promise.all(
    tables.map(async (table) => (await engine.db.selectFrom(table).selectAll().execute()).length),
  )
}

test('FN-1 000-52 000-71 000-74 deploy answers the record, and the list shows it', async (t) => {
  const { functions, client } = await setup(t)
  const answer = await functions.deploy(
    deployment({ cpuMillis: 250, memMb: 32, allowCommunity: true, region: 'blr1' }),
  )
  const { id, created_at, updated_at, ...rest } = answer.function
  assert.match(id, /^fn_/)
  assert.equal(created_at, updated_at)
  assert.deepEqual(rest, {
    name: 'word-count',
    version: 1,
    sha256: sha256Hex(wordCount),
    size_bytes: wordCount.length,
    cpu_millis: 250,
    mem_mb: 32,
    allow_community: true,
    region: 'blr1',
    timeout_ms: 30_000,
    fuel_max: null,
    idempotent: false,
    public: false,
  })
  const listed = await functions.list({ orgId: ORG })
  assert.deepEqual(listed, { functions: [answer.function], next_cursor: null })
  const { events } = await client.compute.events.list({ orgId: ORG, subject: id })
  assert.deepEqual(
    events.map((event) => [event.kind, event.data['name'], event.data['version']]),
    [['function.deployed', 'word-count', 1]],
  )
})

test('D16 a preview 1 program is deployed as it is', async (t) => {
  const { world, functions } = await setup(t)
  await functions.deploy(deployment({ component: preview1.toString('base64') }))
  const [row] = await world.engine.db.selectFrom('components').selectAll().execute()
  assert.deepEqual([row?.kind, row?.sizeBytes], ['preview1', preview1.length])
  const artifact = await world.engine.db
    .selectFrom('artifacts')
    .selectAll()
    .executeTakeFirstOrThrow()
  const bytes = await world.engine.blobs.get(artifact.sha256)
  assert.equal(bytes?.length, artifact.sizeBytes)
})

test('000-51 FN-2 what is no component is refused at deploy, nothing is stored, and invoke knows no such function', async (t) => {
  const { world, functions } = await setup(t)
  const cases: [what: Buffer, reason: string, says: RegExp][] = [
    [Buffer.from('hello, I am a text file'), 'BAD_MAGIC', /component/],
    [wordCount.subarray(0, 7), 'TOO_SHORT', /7 bytes/],
    [Buffer.alloc(0), 'TOO_SHORT', /0 bytes/],
    [hex('0061736d 09090909'), 'BAD_VERSION', /version/],
    [wordCount.subarray(0, 3_000), 'MALFORMED', /component: .*malformed/],
    [importing, 'IMPORT_REFUSED', /component: .*env/],
    [library, 'NO_RUN', /component: .*_start/],
  ]
  for (const [bytes, reason, says] of cases) {
    const call = functions.deploy(deployment({ component: bytes.toString('base64') }))
    const { data } = await refused(call, 'INVALID', says)
    assert.equal(data?.reason, reason)
  }
  await refused(
    functions.deploy(deployment({ component: large.toString('base64'), memMb: 16 })),
    'INVALID',
    /component: .*16/,
  )
  assert.deepEqual(await traces(world), [0, 0, 0, 0, 0])
  await refused(functions.invoke({ orgId: ORG, name: 'word-count' }), 'NOT_FOUND', /word-count/)
  assert.equal(await world.engine.blobs.has(sha256Hex(wordCount)), false)
})

test('FN-2 a memory minimum under memMb is deployed', async (t) => {
  const { functions } = await setup(t)
  await functions.deploy(deployment({ component: large.toString('base64'), memMb: 32 }))
})

test('FN-1 000-52 malformed base64 names component; absence and a size over 8 MiB too', async (t) => {
  const { world, functions } = await setup(t)
  const good = wordCount.toString('base64')
  for (const component of [
    '***',
    good.slice(0, -1),
    `${good}\n`,
    'AB=C',
    good.replace(/\w/, '-'),
  ]) {
    const { data } = await refused(
      functions.deploy(deployment({ component })),
      'INVALID',
      /component/,
    )
    assert.equal(data?.reason, 'BAD_BASE64')
  }
  await refused(
    functions.deploy({ orgId: ORG, name: 'x' } as never),
    'INVALID',
    /component is required/,
  )
  const over = Buffer.concat([wordCount, Buffer.alloc(COMPONENT_INLINE_MAX + 1 - wordCount.length)])
  await refused(
    functions.deploy(deployment({ component: over.toString('base64') })),
    'TOO_LARGE',
    /component has 8.0 MB/,
  )
  assert.deepEqual(await traces(world), [0, 0, 0, 0, 0])
})

test('FN-1 000-54 000-55 cpuMillis and memMb: whole numbers in their range, one error a field', async (t) => {
  const { functions } = await setup(t)
  const bad = [99, 16_001, 1.5, '', 'text', null, true, '250', -1]
  for (const cpuMillis of bad)
    await refused(
      functions.deploy(deployment({ cpuMillis })),
      'INVALID',
      /cpuMillis must be a whole number from 100 to 16000/,
    )
  for (const memMb of [15, 4_097, 16.5, '', 'text', null])
    await refused(
      functions.deploy(deployment({ memMb })),
      'INVALID',
      /memMb must be a whole number from 16 to 4096/,
    )
  const both = await refused(
    functions.deploy(deployment({ cpuMillis: 0, memMb: 0, name: 'A' })),
    'INVALID',
    /name.*cpuMillis.*memMb/,
  )
  assert.equal((both.data as { fields?: unknown[] }).fields?.length, 3)
  for (const over of [{ cpuMillis: 100 }, { cpuMillis: 16_000 }, { memMb: 4_096 }, {}])
    await functions.deploy(deployment(over))
  const { function: made } = await functions.get({ orgId: ORG, name: 'word-count' })
  assert.deepEqual([made.cpu_millis, made.mem_mb, made.version], [1_000, 64, 4])
})

test('FN-1 000-10 a name is lowercase letters, digits and dashes', async (t) => {
  const { functions } = await setup(t)
  for (const name of ['', '-a', 'A', 'a_b', 'a.b', ' a', 'a'.repeat(64)])
    await refused(functions.deploy(deployment({ name })), 'INVALID', /name .*lowercase letters/)
  for (const name of ['a', '0', 'node-a1', 'a'.repeat(63)])
    await functions.deploy(deployment({ name }))
  const { functions: all } = await functions.list({ orgId: ORG })
  assert.deepEqual(
    all.map(({ name }) => name.slice(0, 7)),
    ['0', 'a', 'aaaaaaa', 'node-a1'],
  )
})

test('000-67 AC-2 without orgId, of another org, or below member: refused', async (t) => {
  const { world, functions } = await setup(t)
  await refused(
    functions.deploy({ ...deployment(), orgId: undefined } as never),
    'INVALID',
    /orgId is required/,
  )
  await refused(functions.deploy(deployment({ orgId: 'org_unknown' })), 'FORBIDDEN', /org/)
  const guest = world.client(await world.orgKey('guest')).compute.functions
  await refused(guest.deploy(deployment()), 'FORBIDDEN', /member/)
  await functions.deploy(deployment())
  await refused(guest.delete({ orgId: ORG, name: 'word-count' }), 'FORBIDDEN', /member/)
  assert.equal((await guest.list({ orgId: ORG })).functions.length, 1)
  const other = await world.makeOrg('other')
  const stranger = world.client(await world.orgKey('owner', other)).compute.functions
  assert.deepEqual((await stranger.list({ orgId: other })).functions, [])
  for (const call of [stranger.get, stranger.delete, stranger.rollback, stranger.invocations])
    await refused(call({ orgId: other, name: 'word-count' }), 'NOT_FOUND', /word-count/)
})

test('FN-7 a redeploy is a new version; rollback and get show which is current; delete ends all', async (t) => {
  const { world, client, functions } = await setup(t)
  const of = { orgId: ORG, name: 'word-count' }
  const first = await functions.deploy(deployment())
  const second = await functions.deploy(
    deployment({ component: preview1.toString('base64'), cpuMillis: 500 }),
  )
  assert.equal(second.function.id, first.function.id)
  const third = await functions.deploy(deployment({ memMb: 128 }))
  assert.equal(third.function.version, 3)
  const back = await functions.rollback(of)
  assert.deepEqual([back.function.version, back.function.cpu_millis], [2, 500])
  assert.equal((await functions.rollback(of)).function.version, 1)
  const none = await refused(functions.rollback(of), 'INVALID_STATE', /no version before 1/)
  assert.equal(none.data?.reason, 'NO_EARLIER_VERSION')
  await refused(functions.rollback({ ...of, version: 9 }), 'NOT_FOUND', /no version 9.*3, 2, 1/)
  await functions.rollback({ ...of, version: 3 })
  assert.equal((await functions.deploy(deployment())).function.version, 4, 'numbers are not reused')
  const { versions } = await functions.get(of)
  assert.deepEqual(
    versions.map(({ version, current, mem_mb, sha256 }) => [version, current, mem_mb, sha256]),
    [
      [4, true, 64, sha256Hex(wordCount)],
      [3, false, 128, sha256Hex(wordCount)],
      [2, false, 64, sha256Hex(preview1)],
      [1, false, 64, sha256Hex(wordCount)],
    ],
  )
  assert.deepEqual((await traces(world)).slice(0, 4), [2, 3, 1, 4])
  const gone = await functions.delete(of)
  assert.equal(gone.function.version, 4)
  await refused(functions.get(of), 'NOT_FOUND', /word-count/)
  await refused(functions.delete(of), 'NOT_FOUND', /word-count/)
  const { events } = await client.compute.events.list({ orgId: ORG, subject: first.function.id })
  assert.deepEqual(
    events.map(({ kind }) => kind.replace('function.', '')),
    ['deleted', 'deployed', ...Array(3).fill('rolled-back'), ...Array(3).fill('deployed')],
  )
  assert.equal((await functions.deploy(deployment())).function.version, 1, 'a new function')
})

test('FN-7 deploys of one name at once are versions one after the other', async (t) => {
  const { functions } = await setup(t)
  const answers = await Promise.all(
    [16, 17, 18, 19, 20].map((cpu) => functions.deploy(deployment({ cpuMillis: cpu * 100 }))),
  )
  const versions = answers.map((a) => a.function.version)
  assert.deepEqual(new Set(versions), new Set([1, 2, 3, 4, 5]))
  assert.equal(new Set(answers.map((a) => a.function.id)).size, 1)
})

test('D51 a deploy that is sent twice with one key is one version', async (t) => {
  const { world } = await setup(t)
  const key = await world.orgKey('member')
  const post = (body: object) =>
    world.fetch('/v1/functions', {
      body,
      headers: { authorization: `Bearer ${key}`, 'idempotency-key': 'once' },
    })
  const first = await post(deployment())
  const second = await post(deployment())
  assert.deepEqual([first.status, second.status], [200, 200])
  assert.deepEqual(await second.json(), await first.json())
  assert.equal((await post(deployment({ memMb: 128 }))).status, 409)
  assert.deepEqual((await traces(world)).slice(0, 4), [1, 1, 1, 1])
})

test('D51 the answer of a deploy is committed with it: a repeat finds it though the engine died between', async (t) => {
  const { world } = await setup(t)
  const key = await world.orgKey('member')
  const post = () =>
    world.fetch('/v1/functions', {
      body: deployment(),
      headers: { authorization: `Bearer ${key}`, 'idempotency-key': 'once' },
    })
  // What comes after the commit fails, as if the engine had died there.
  const { engine } = world
  const { invoker } = engine
  engine.invoker = {
    ...invoker,
    changed() {
      throw new Error('the engine is gone')
    },
  }
  assert.equal((await post()).status, 500)
  engine.invoker = invoker
  const again = await post()
  assert.equal(again.status, 200)
  const answer = (await again.json()) as { function: { version: number } }
  assert.equal(answer.function.version, 1)
  assert.deepEqual((await traces(world)).slice(0, 4), [1, 1, 1, 1])
})

test('FN-7 pages of the list follow each other', async (t) => {
  const { functions } = await setup(t)
  for (const name of ['d', 'a', 'c', 'b', 'e']) await functions.deploy(deployment({ name }))
  const one = await functions.list({ orgId: ORG, limit: 2 })
  const two = await functions.list({ orgId: ORG, limit: 2, cursor: one.next_cursor ?? '' })
  const three = await functions.list({ orgId: ORG, limit: 2, cursor: two.next_cursor ?? '' })
  const names = [one, two, three].map((page) => page.functions.map(({ name }) => name))
  assert.deepEqual(names, [['a', 'b'], ['c', 'd'], ['e']])
  assert.equal(three.next_cursor, null)
})

test('FN-3 wrong inputs of invoke are refused by their field', async (t) => {
  const { functions } = await setup(t)
  await functions.deploy(deployment())
  const of = { orgId: ORG, name: 'word-count' }
  const cases: [object, string, RegExp][] = [
    [{ stdin: 'a', stdinBase64: 'YQ==' }, 'INVALID', /stdin and stdinBase64/],
    [{ stdinBase64: 'not base64' }, 'INVALID', /stdinBase64/],
    [{ stdin: 'x'.repeat(8 * 1024 * 1024 + 1) }, 'TOO_LARGE', /stdin/],
    [{ args: ['a\0b'] }, 'INVALID', /args/],
    [{ env: { 'A B': 'c' } }, 'INVALID', /env/],
    [{ env: { A: 'b\0' } }, 'INVALID', /env/],
    [{ args: Array(9).fill('é'.repeat(8_000)) }, 'INVALID', /144000 bytes/],
    [{ args: Array(257).fill('') }, 'INVALID', /args/],
    [{ timeoutMs: 0 }, 'INVALID', /timeoutMs must be a whole number from 1 to 900000/],
    [{ timeoutMs: 900_001 }, 'INVALID', /timeoutMs/],
    [{ name: 'A' }, 'INVALID', /name/],
  ]
  for (const [over, code, says] of cases)
    await refused(functions.invoke({ ...of, ...over }), code, says)
})

test('000-07 PL-6 no input of a function or of placement names a node', async (t) => {
  const { functions } = await setup(t)
  await functions.deploy(deployment())
  // Fields that nobody knows change nothing: there is no node, and the answer says so.
  const sent = { orgId: ORG, name: 'word-count', node: 'node-a1', nodeId: 'node-a1' }
  assert.equal((await functions.invoke(sent)).reason, 'no-node')
})

test('FN-2 the bytes of a refused component are in no folder of the blobs', async (t) => {
  const { world, functions } = await setup(t)
  await refused(
    functions.deploy(deployment({ component: importing.toString('base64') })),
    'INVALID',
    /env/,
  )
  assert.equal(await world.engine.blobs.has(sha256Hex(importing)), false)
  await functions.deploy(deployment())
  assert.equal(await world.engine.blobs.has(sha256Hex(wordCount)), true)
})

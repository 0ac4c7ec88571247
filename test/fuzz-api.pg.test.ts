// Whatever a caller sends, an answer is a success or a refusal: never a mistake of ours.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { contract } from '#api/contract.ts'
import { createLogger } from '#lib/log.ts'
import { makeWorld } from '#test/world.ts'

const RUNS = 50

type Shape = Record<string, unknown>

function procedures(part: object, path: string[] = []): { name: string; fields: string[] }[] {
  if ('~orpc' in part) {
    const { inputSchema } = part['~orpc'] as { inputSchema: { shape: Shape } }
    return [{ name: path.join('/'), fields: Object.keys(inputSchema.shape) }]
  }
  return Object.entries(part).flatMap(([key, next]) => procedures(next as object, [...path, key]))
}

/** Values that break careless code: bounds, NUL, lone surrogates, numbers in text, objects for text. */
const odd = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    '',
    '\u0000',
    'a\u0000b',
    '\uD800',
    '__proto__',
    'constructor',
    "'; drop table nodes; --",
    '%',
    'ü'.repeat(70),
    'a',
    0,
    -1,
    1.5,
    2 ** 31,
    2 ** 53,
    1e308,
    true,
    [],
    {},
    { orgId: 'platform' },
    'secure',
    'community',
    'owner',
    'platform',
    'a@example.test',
    'AGFzbQEAAAA=',
  ),
  fc.string({ unit: 'binary', maxLength: 80 }),
  fc.jsonValue({ maxDepth: 3 }),
  fc.integer(),
)

/** What a field usually is, by its name. */
const usual: Record<string, (n: number) => unknown> = {
  orgId: () => 'platform',
  nodeId: (n) => `node-${n}`,
  trustTier: () => 'community',
  name: (n) => `f-${n}`,
  id: () => 'a1',
  email: (n) => `p${n}@example.test`,
  component: () => 'AGFzbQEAAAA=',
  draining: () => true,
}

test(
  'rule 5 any input to any procedure is answered by a success or a refusal',
  { timeout: 180_000 },
  async (t) => {
    const lines: string[] = []
    const log = createLogger('test', 'error', { write: (line: string) => void lines.push(line) })
    const many = 1_000_000
    const world = await makeWorld(t, {
      log,
      config: { enrollsPerMinute: many, deploysPerMinute: many },
    })
    await world.signUpOwner()
    const headers = { 'x-api-key': await world.orgKey('owner') }
    const seed = Date.now()
    for (const { name, fields } of procedures(contract)) {
      // Right but for one field or two: what is wrong everywhere never comes further than the first check.
      const input = fc
        .tuple(
          fc.uniqueArray(fc.constantFrom('orgId', ...fields), { maxLength: 2 }),
          odd,
          odd,
          fc.nat(),
        )
        .map(([wrong, first, second, n]) => {
          const right = Object.fromEntries(
            fields.flatMap((field) => (field in usual ? [[field, usual[field]!(n)]] : [])),
          )
          const values = [first, second]
          return { ...right, ...Object.fromEntries(wrong.map((field, at) => [field, values[at]])) }
        })
      const anyInput = fc.oneof({ weight: 4, arbitrary: input }, { weight: 1, arbitrary: odd })
      await fc.assert(
        fc.asyncProperty(
          anyInput,
          fc.oneof({ weight: 9, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: odd }),
          async (value, org) => {
            const json =
              org === null || typeof value !== 'object' || value === null
                ? value
                : { ...value, orgId: org }
            const response = await world.fetch(`/rpc/${name}`, { body: { json }, headers })
            const text = await response.text()
            assert.ok(
              response.status < 500 || /"UNAVAILABLE"/.test(text),
              `${name} ${JSON.stringify(json)} gives ${text}\n${lines.at(-1)}`,
            )
          },
        ),
        { numRuns: RUNS, seed },
      )
    }
  },
)

test('rule 5 text that the store cannot hold is refused by the field that holds it', async (t) => {
  const lines: string[] = []
  const log = createLogger('test', 'error', { write: (line: string) => void lines.push(line) })
  const world = await makeWorld(t, {
    log,
    config: { enrollsPerMinute: 10_000, deploysPerMinute: 10_000 },
  })
  const { cookie } = await world.signUpOwner()
  let n = 0
  for (const headers of [{ 'x-api-key': await world.orgKey('owner') }, { cookie }])
    for (const { name, fields } of procedures(contract))
      for (const field of fields)
        for (const text of ['a\u0000b', 'a\uD800', "'%\\", '\u{1F600}']) {
          const right = fields.flatMap((one) => (one in usual ? [[one, usual[one]!(n++)]] : []))
          const json = { ...Object.fromEntries(right), [field]: text } as Record<string, unknown>
          if (json['contributor'] !== undefined) json['trustTier'] = 'community'
          const response = await world.fetch(`/rpc/${name}`, { body: { json }, headers })
          const answer = await response.text()
          const stored = /^(args|env|stdin|stdinBase64)$/.test(field)
            ? false
            : !text.isWellFormed() || text.includes('\0')
          const message = `${name} ${field} ${JSON.stringify(text)} gives ${answer}\n${lines.at(-1)}`
          assert.ok(response.status < 500 || /"UNAVAILABLE"/.test(answer), message)
          if (stored && response.ok) assert.fail(message)
        }
})

test('NUL in what the identity system stores is refused', async (t) => {
  const world = await makeWorld(t)
  const { cookie } = await world.signUpOwner()
  for (const [path, body] of [
    ['/setup', { token: 'a\0', name: 'a', email: 'a@example.test', password: 'a password of ten' }],
    [
      '/invitation',
      { token: 'x', name: 'a\0', email: 'a@example.test', password: 'a password of ten' },
    ],
    ['/api/auth/update-user', { name: 'a\0' }],
    ['/api/auth/device/code', { client_id: 'ccp', scope: '\0' }],
    ['/api/auth/organization/create', { name: '\0', slug: 'a' }],
  ] as const)
    assert.equal((await world.fetch(path, { body, headers: { cookie } })).status, 400, path)
})

test('rule 5 bodies, paths and headers of any bytes', async (t) => {
  const world = await makeWorld(t)
  const key = await world.orgKey('owner')
  const bytes = fc.string({ unit: 'binary', maxLength: 200 })
  const path = fc.constantFrom(
    '/v1/nodes',
    '/rpc/compute/nodes/enroll',
    '/setup',
    '/api/auth/sign-in/email',
    '/v1/keys',
    '/v1/components',
    '/fn/nowhere/f',
    '/fn/%00/%ff',
  )
  const header = fc.stringMatching(/^[\x20-\x7e]{0,60}$/)
  await fc.assert(
    fc.asyncProperty(
      path,
      bytes,
      header,
      fc.webQueryParameters(),
      async (at, body, value, query) => {
        const response = await world.fetch(`${at}?${query}`, {
          method: 'POST',
          body,
          headers: {
            'x-api-key': key,
            'idempotency-key': value,
            'x-request-id': value,
            'if-none-match': value,
            cookie: value,
          },
        })
        const text = await response.text()
        assert.ok(
          response.status < 500,
          `${at} ${JSON.stringify({ body, value, query })} gives ${text}`,
        )
      },
    ),
    { numRuns: 150, seed: Date.now() },
  )
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AppError } from '#lib/error.ts'
import { jsonOf } from '#engine/http/body.ts'

const parse = (text: string): unknown => jsonOf(Buffer.from(text), 'application/json')

test('FN-3 a field named __proto__ is refused wherever it stands, not dropped', () => {
  for (const text of [
    '{"env":{"__proto__":"x"}}',
    '{"env":{"\\u005f_proto__":"x"}}',
    '[[{"__proto__":null}]]',
    '{"__proto__":{"orgId":"other"},"orgId":"mine"}',
  ])
    assert.throws(
      () => parse(text),
      (error) =>
        error instanceof AppError && error.code === 'INVALID' && /__proto__/.test(error.message),
      text,
    )
  assert.deepEqual(parse('{"env":{"constructor":"x"},"stdin":"__proto__"}'), {
    env: { constructor: 'x' },
    stdin: '__proto__',
  })
})

test('a body as deep as it is long is read', () => {
  assert.ok(Array.isArray(parse(`${'['.repeat(30_000)}${']'.repeat(30_000)}`)))
})

import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { encode as encodeLoose } from 'cborg'
import fc from 'fast-check'
import { z } from 'zod'
import { AppError } from '#lib/error.ts'
import { DEPTH_MAX, ITEMS_MAX, decode, decodeAs, encode, parseAs } from '#protocol/codec.ts'

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex')
const malformed = (error: unknown): boolean =>
  error instanceof AppError &&
  error.code === 'INVALID' &&
  error.details.reason === 'MESSAGE_MALFORMED'

const key = fc.string({ unit: 'binary', maxLength: 8 }).filter((k) => k !== '__proto__')
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.maxSafeInteger(),
    fc.boolean(),
    fc.constant(null),
    fc.uint8Array({ maxLength: 40 }),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(key, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
}))

/** What messages hold seldom or never, and the edges of what they hold. */
const rare = fc.oneof(
  fc.double(),
  fc.constantFrom(-0, 23, 24, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1, 2 ** 60),
  fc.constantFrom(-24, -25, -256, -257, -65_536, -65_537, -(2 ** 32), 1 - 2 ** 53, 0.1, 1.5, 1e-6),
  fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  fc.string({ unit: fc.constantFrom('\ud83d', '\ude00', '\ud800', 'a', '\u0000', '\u{1f600}') }),
  fc.string({ minLength: 20, maxLength: 300 }),
  fc.dictionary(fc.string({ unit: 'binary' }), fc.option(fc.nat(), { nil: undefined })),
  fc.dictionary(fc.string({ maxLength: 3 }), fc.float()),
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  fc.array(fc.constantFrom(undefined, null, true, 1)),
  fc.array(fc.tuple(fc.string({ maxLength: 2 }), fc.nat())).map((all) => ({ map: new Map(all) })),
)

suite('codec', () => {
  test('ND-3 what is encoded is decoded, and the same value always has the same bytes', () => {
    fc.assert(
      fc.property(value, (sent) => {
        const bytes = encode(sent)
        const got = decode(bytes)
        assert.deepEqual(got, sent)
        assert.ok(encode(got).equals(bytes))
      }),
    )
  })

  test('ND-3 the bytes are those of cborg, whatever the value', () => {
    const anything = fc.oneof(value, rare)
    fc.assert(
      fc.property(anything, fc.nat(8), (sent, before) => {
        const wanted = Buffer.from(encodeLoose(sent, { ignoreUndefinedProperties: true }))
        assert.equal(encode(sent, before).toString('hex', before), wanted.toString('hex'))
      }),
      { numRuns: 3000 },
    )
    const large = { text: 'ä'.repeat(100_000), bytes: new Uint8Array(600_000).fill(7), n: 1.5 }
    assert.ok(encode(large).equals(encodeLoose(large)))
    assert.ok(encode({ t: 'x' }).equals(encodeLoose({ t: 'x' })))
  })

  test('ND-3 key order does not change the bytes, and undefined properties are left out', () => {
    assert.ok(encode({ a: 1, bb: 2, c: undefined }).equals(encode({ bb: 2, a: 1 })))
  })

  test('ND-3 bytes are copies, so that the memory they came in can be used again', () => {
    const bytes = encode({ b: new Uint8Array([1, 2, 3]) })
    const got = decode(bytes) as { b: Uint8Array }
    bytes.fill(0)
    assert.deepEqual(got.b, new Uint8Array([1, 2, 3]))
    assert.equal(Buffer.isBuffer(got.b), false)
  })

  const cases: [string, Buffer, RegExp][] = [
    ['nothing', hex(''), /./],
    ['two values', hex('01 02'), /./],
    ['a repeated key', hex('a2 6161 01 6161 02'), /repeat map key/],
    ['a tag', hex('c0 61 61'), /tag/],
    ['a big integer as a tag', hex('c2 49 010000000000000000'), /tag/],
    ['undefined', hex('f7'), /undefined/],
    ['NaN', hex('f97e00'), /NaN/],
    ['Infinity', hex('f97c00'), /Infinity/],
    ['an array without a length', hex('9f 01 ff'), /indefinite/],
    ['text without a length', hex('7f 6161 ff'), /indefinite/],
    ['an integer that is longer than it need be', hex('1801'), /more bytes than necessary/],
    ['an integer above 2^53', hex('1b 0020000000000000'), /./],
    ['a key that is no text', hex('a1 01 02'), /non-string keys/],
    [
      'a key named __proto__',
      encodeLoose(new Map([['__proto__', { x: 1 }]])) as Buffer,
      /__proto__/,
    ],
    ['text that is no UTF-8', hex('62 c3 28'), /UTF-8/],
    ['an array longer than its bytes', hex('9a ffffffff'), /announced/],
    ['a map longer than its bytes', hex('ba 7fffffff'), /announced/],
    ['bytes longer than there are', hex('5a 7fffffff 00'), /./],
    ['nesting without end', Buffer.alloc(100_000, 0x81), /nested deeper|announced/],
    ['a cut-off map', hex('a1 6161'), /./],
  ]
  for (const [name, bytes, message] of cases)
    test(`design-9 ${name} is refused`, () => {
      assert.throws(
        () => decode(bytes),
        (error) => malformed(error) && message.test((error as Error).message),
      )
    })

  test('ND-3 nesting up to the limit is read, one deeper is not', () => {
    const nested = (depth: number): Buffer => Buffer.concat([Buffer.alloc(depth, 0x81), hex('01')])
    decode(nested(DEPTH_MAX))
    assert.throws(() => decode(nested(DEPTH_MAX + 1)), malformed)
  })

  test('ND-3 the number of values is bounded', () => {
    const wide = (count: number): Uint8Array => encodeLoose(Array.from({ length: count }, () => 0))
    decode(wide(ITEMS_MAX - 1))
    assert.throws(() => decode(wide(ITEMS_MAX)), malformed)
  })

  test('ND-3 a replacement character that was sent is text like any other', () => {
    assert.equal(decode(encode('a\uFFFDb')), 'a\uFFFDb')
  })

  test('ND-3 any bytes: a value or the typed refusal', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          decode(bytes)
        } catch (error) {
          assert.ok(malformed(error), String(error))
        }
      }),
      { numRuns: 3000 },
    )
  })

  test('ND-3 a value with one byte changed: a value or the typed refusal', () => {
    fc.assert(
      fc.property(value, fc.nat(), fc.nat(255), (sent, at, byte) => {
        const bytes = encode(sent)
        bytes[at % bytes.length] = byte
        try {
          decode(bytes)
        } catch (error) {
          assert.ok(malformed(error), String(error))
        }
      }),
      { numRuns: 2000 },
    )
  })
})

suite('schemas', () => {
  const schema = z.object({ t: z.literal('x'), list: z.array(z.object({ n: z.number() })) })

  test('ND-3 unknown keys are ignored', () => {
    const message = { t: 'x', list: [{ n: 1, later: true }], more: 'yes' }
    assert.deepEqual(decodeAs(schema, encode(message), 'x'), { t: 'x', list: [{ n: 1 }] })
  })

  test('ND-3 a refusal names the message and the field, and never the value', () => {
    const message = { t: 'x', list: [{ n: 'a secret' }] }
    assert.throws(
      () => parseAs(schema, message, 'x'),
      (error) =>
        malformed(error) &&
        /x at list\.0\.n: /.test((error as Error).message) &&
        !/secret/.test((error as Error).message),
    )
  })

  test('ND-3 what has no CBOR form is an error of the programmer', () => {
    assert.throws(() => encode({ fn: () => 1 }), /unsupported type: Function/)
  })
})

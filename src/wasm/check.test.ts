import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AppError } from '#lib/error.ts'
import { checkMagic } from '#wasm/check.ts'

const refusal = (bytes: Uint8Array): AppError => {
  try {
    checkMagic(bytes)
  } catch (error) {
    assert.ok(error instanceof AppError)
    return error
  }
  return assert.fail('accepted')
}

test('FN-2 a component and a core module are told apart by their version bytes', () => {
  assert.equal(checkMagic(Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0)), 'component')
  assert.equal(checkMagic(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0)), 'core')
})

test('FN-2 fewer than eight bytes are refused with their count', () => {
  for (const length of [0, 1, 7]) {
    const error = refusal(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0).subarray(0, length))
    assert.equal(error.code, 'INVALID')
    assert.equal(error.details.reason, 'TOO_SHORT')
    assert.match(error.message, new RegExp(`has ${length} bytes`))
  }
})

test('FN-2 a wrong magic is named in hex and, where it prints, as text', () => {
  const text = refusal(Buffer.from('hello world'))
  assert.equal(text.details.reason, 'BAD_MAGIC')
  assert.match(text.message, /starts with 68 65 6c 6c \("hell"\), expected the magic 00 61 73 6d/)
  assert.match(refusal(Buffer.from('(module)')).message, /28 6d 6f 64 \("\(mod"\)/)
  assert.doesNotMatch(refusal(Uint8Array.from({ length: 8 }, () => 0xff)).message, /ff \("/)
})

test('FN-2 an unknown version is refused with the versions that are right', () => {
  const error = refusal(Uint8Array.of(0, 0x61, 0x73, 0x6d, 0x0a, 0, 1, 0))
  assert.equal(error.details.reason, 'BAD_VERSION')
  assert.match(error.message, /0a 00 01 00.*0d 00 01 00.*01 00 00 00/)
})

// The bench's own reader: whatever way an answer is cut, it is read once and whole.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { AnswerReader } from '#sim/bench/answer-reader.ts'

const KNOWN = 'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-Y: z\r\n\r\n{"ok":"ä"}'
const CHUNKED =
  'HTTP/1.1 502 Bad\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, world 10\r\n0\r\n\r\n'

test('FN-8 the load client reads answers however they are cut', () => {
  const bytes = Buffer.from(KNOWN + CHUNKED)
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (sizes) => {
      const answers: [number, string][] = []
      const reader = new AnswerReader((status, body) => answers.push([status, body]))
      for (let at = 0, turn = 0; at < bytes.length; turn++) {
        const size = sizes[turn % sizes.length]!
        reader.push(bytes.subarray(at, at + size))
        at += size
      }
      assert.deepEqual(answers, [
        [200, '{"ok":"ä"}'],
        [502, 'hello, world 10'],
      ])
    }),
  )
})

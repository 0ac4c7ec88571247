import assert from 'node:assert/strict'
import { test } from 'node:test'
import { seededRandom } from '#lib/random.ts'
import { frameHeader, frameReader } from '#wasm/child/frames.ts'

test('FN-4 frames come whole however the stream is cut', () => {
  const random = seededRandom('frames')
  const payloads = Array.from({ length: 200 }, (_, i) =>
    Buffer.from(random.bytes(i % 7 === 0 ? 0 : random.below(3000))),
  )
  const stream = Buffer.concat(
    payloads.flatMap((payload, i) => [frameHeader(i % 250, payload.length), payload]),
  )
  const read = frameReader(3000)
  const found: Buffer[] = []
  let kinds = 0
  for (let at = 0; at < stream.length;) {
    const end = at + 1 + random.below(random.below(4) === 0 ? 9000 : 40)
    for (const { kind, payload } of read(stream.subarray(at, end))) {
      assert.equal(kind, kinds++ % 250)
      found.push(payload)
    }
    at = end
  }
  assert.deepEqual(found, payloads)
})

test('FN-4 a frame over the limit is refused by its header, before its bytes come', () => {
  const read = frameReader(100)
  assert.throws(() => read(Buffer.from(frameHeader(3, 101))), /a frame of 101 bytes, over 100/)
})

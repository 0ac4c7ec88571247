import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { backoffMs } from '#lib/backoff.ts'
import { formatBytes, fromBase64, sameBytes } from '#lib/bytes.ts'
import { formatDuration } from '#lib/duration.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { newId } from '#lib/id.ts'
import { createLogger, silentLogger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'

test('ids sort by time, carry their prefix and do not repeat', () => {
  const early = newId('node', 1_000, systemRandom)
  const late = newId('node', 2_000, systemRandom)
  assert.match(early, /^node_[0-9a-hjkmnp-tv-z]{26}$/)
  assert.ok(early < late)
  const many = new Set(Array.from({ length: 1_000 }, () => newId('evt', 5, systemRandom)))
  assert.equal(many.size, 1_000)
})

test('systemRandom gives what is asked for, never the same twice, and keeps none of it', () => {
  const seen = new Set<string>()
  for (let round = 0; round < 2_000; round++) {
    const size = 8 + (round % 40)
    const bytes = systemRandom.bytes(size)
    assert.equal(bytes.length, size)
    assert.equal(bytes.byteLength, bytes.buffer.byteLength)
    seen.add(Buffer.from(bytes.subarray(0, 8)).toString('hex'))
  }
  assert.equal(seen.size, 2_000)
  for (const size of [0, 1, 511, 512, 513, 4096, 100_000])
    assert.equal(systemRandom.bytes(size).length, size)
})

test('a seed gives the same chance for ever', () => {
  const draw = (seed: number): number[] => {
    const random = seededRandom(seed)
    return Array.from({ length: 20 }, () => random.below(1_000))
  }
  assert.deepEqual(draw(7), draw(7))
  assert.notDeepEqual(draw(7), draw(8))
})

test('backoff stays under its cap and grows', () => {
  const random = { ...seededRandom(1), float: () => 1 }
  const at = (attempt: number): number => backoffMs(attempt, { baseMs: 100, capMs: 2_000 }, random)
  assert.deepEqual([0, 1, 2, 5, 1_000].map(at), [100, 200, 400, 2_000, 2_000])
})

test('only canonical base64 is read', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      const read = fromBase64(Buffer.from(bytes).toString('base64'))
      assert.ok(read && sameBytes(read, bytes))
    }),
  )
  for (const bad of ['a', 'ab=c', 'ab==cd==', 'a b=', 'AB', 'AB==\n', '-_==', 'AR=='])
    assert.equal(fromBase64(bad), undefined, bad)
})

test('texts for people', () => {
  assert.deepEqual([0, 1023, 57 * 1024, 12.4 * 1024 ** 2].map(formatBytes), [
    '0 B',
    '1023 B',
    '57 KB',
    '12.4 MB',
  ])
  assert.deepEqual([840, 1_234, 185_000, 7_440_000, 86_400_000].map(formatDuration), [
    '840 ms',
    '1.2 s',
    '3 min 5 s',
    '2 h 4 min',
    '1 d',
  ])
  assert.equal(messageOf(new AppError('INVALID', 'a', { cause: new Error('b') })), 'a: b')
})

test('the fake clock fires what falls due, in order, and nothing else', async () => {
  const clock = fakeClock()
  const seen: string[] = []
  clock.after(20, () => seen.push('b'))
  clock.after(10, () => clock.after(5, () => seen.push('a')))
  clock.after(50, () => seen.push('late'))
  await clock.advance(30)
  assert.deepEqual(seen, ['a', 'b'])
  assert.equal(clock.pending(), 1)
})

test('a loop passes periodically, coalesces wakes, reports failures and stops', async () => {
  const clock = fakeClock()
  let fail = false
  const loop = new Loop(
    {
      name: 'x',
      everyMs: 1_000,
      pass: async () => (fail ? Promise.reject(new Error('no')) : { ok: true }),
    },
    { clock, log: silentLogger },
  )
  loop.start()
  await clock.advance(0)
  assert.equal(loop.status.passes, 1)
  for (let i = 0; i < 10; i++) loop.wake()
  await clock.advance(60)
  assert.equal(loop.status.passes, 2)
  fail = true
  await clock.advance(1_000)
  assert.deepEqual([loop.status.passes, loop.status.failures, loop.status.error], [3, 1, 'no'])
  await loop.stop()
  await clock.advance(10_000)
  assert.equal(loop.status.passes, 3)
})

test('a loop that fails says so once, and once when it succeeds again', async () => {
  const clock = fakeClock()
  const lines: string[] = []
  const log = createLogger('test', 'info', { write: (line: string) => void lines.push(line) })
  let fault: string | undefined = 'away'
  const pass = async (): Promise<Record<string, unknown>> => {
    if (fault !== undefined) throw new Error(fault)
    return {}
  }
  const loop = new Loop({ name: 'x', everyMs: 1_000, pass }, { clock, log })
  loop.start()
  await clock.advance(5_000)
  fault = 'full'
  await clock.advance(5_000)
  fault = undefined
  await clock.advance(5_000)
  const said = lines.map((line) => JSON.parse(line) as { msg: string; err?: { message: string } })
  assert.deepEqual(
    said.map(({ msg, err }) => [msg, err?.message]),
    [
      ['passes fail', 'away'],
      ['passes fail', 'full'],
      ['passes succeed again', undefined],
    ],
  )
  assert.equal(loop.status.failures, 11)
  await loop.stop()
})

test('secrets are redacted from logs by their names', () => {
  let out = ''
  const log = createLogger('t', 'info', { write: (line: string) => void (out += line) })
  log.info({ token: 'clt_n_x', req: { authorization: 'Bearer y' }, password: 'z' }, 'hello')
  assert.match(out, /hello/)
  for (const secret of ['clt_n_x', 'Bearer y', '"z"']) assert.ok(!out.includes(secret))
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import {
  CHUNK_BYTES_MAX,
  createOutput,
  STDERR_BYTES_MAX,
  STDOUT_BYTES_MAX,
  type Stream,
} from '#wasm/guest/output.ts'

const recorded = (): {
  sent: [Stream, string][]
  emit: (to: Stream, bytes: Uint8Array) => void
} => {
  const sent: [Stream, string][] = []
  return { sent, emit: (to, bytes) => void sent.push([to, Buffer.from(bytes).toString()]) }
}

test('FN-3 ordinary writes leave one by one, at once', () => {
  const { sent, emit } = recorded()
  const { write } = createOutput({ clock: fakeClock(), emit, stdoutWhole: false })
  write('stdout', Buffer.from('a'))
  write('stderr', Buffer.from('b'))
  write('stdout', Buffer.alloc(5000, 'c'))
  write('stdout', new Uint8Array(0))
  assert.deepEqual(sent, [
    ['stdout', 'a'],
    ['stderr', 'b'],
    ['stdout', 'c'.repeat(5000)],
  ])
})

test('FN-3 byte-wise writers are gathered past a thousand writes, and lose nothing', async () => {
  const { sent, emit } = recorded()
  const clock = fakeClock()
  const { write, flush } = createOutput({ clock, emit, stdoutWhole: false })
  for (let i = 0; i < 100_000; i++) write('stdout', Buffer.of(0x30 + (i % 10)))
  assert.ok(sent.length < 1100, `${sent.length}`)
  flush()
  assert.equal(sent.map(([, text]) => text).join(''), '0123456789'.repeat(10_000))
  const before = sent.length
  await clock.advance(100)
  write('stdout', Buffer.from('x'))
  assert.equal(sent.length, before + 1)
})

test('FN-3 a large write does not overtake what was gathered', () => {
  const { sent, emit } = recorded()
  const { write, flush } = createOutput({ clock: fakeClock(), emit, stdoutWhole: false })
  for (let i = 0; i < 1005; i++) write('stdout', Buffer.from('a'))
  write('stdout', Buffer.alloc(4096, 'b'))
  flush()
  assert.equal(sent.map(([, text]) => text).join(''), 'a'.repeat(1005) + 'b'.repeat(4096))
})

test('FN-3 each stream is cut at its own bound', () => {
  const { sent, emit } = recorded()
  const { write, truncated } = createOutput({ clock: fakeClock(), emit, stdoutWhole: false })
  write('stdout', new Uint8Array(STDOUT_BYTES_MAX))
  assert.deepEqual(truncated, { stdout: false, stderr: false })
  write('stdout', Buffer.from('over'))
  write('stderr', new Uint8Array(STDERR_BYTES_MAX + 1))
  assert.deepEqual(truncated, { stdout: true, stderr: true })
  assert.deepEqual(
    (['stdout', 'stderr'] as const).map((stream) =>
      sent.reduce((sum, [to, text]) => sum + (to === stream ? text.length : 0), 0),
    ),
    [STDOUT_BYTES_MAX, STDERR_BYTES_MAX],
  )
  assert.ok(sent.every(([, text]) => text.length <= CHUNK_BYTES_MAX))
})

test('FN-9 a stdout that was asked for whole is not cut, stderr still is', () => {
  const { sent, emit } = recorded()
  const { write, truncated } = createOutput({ clock: fakeClock(), emit, stdoutWhole: true })
  for (let i = 0; i < 3; i++) write('stdout', new Uint8Array(STDOUT_BYTES_MAX))
  write('stderr', new Uint8Array(STDERR_BYTES_MAX + 1))
  assert.deepEqual(truncated, { stdout: false, stderr: true })
  const total = sent.reduce((sum, [to, text]) => sum + (to === 'stdout' ? text.length : 0), 0)
  assert.equal(total, 3 * STDOUT_BYTES_MAX)
})

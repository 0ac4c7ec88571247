import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { answerOf, type End, textOf } from '#core/function/answer.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import { workloadOf } from '#core/function/workload.ts'

const ends: End[] = [
  { kind: 'exited', exitCode: 0 },
  { kind: 'exited', exitCode: 3 },
  { kind: 'exited', exitCode: 255 },
  { kind: 'trap', message: 'unreachable' },
  { kind: 'memory', message: 'over 64 MiB' },
  { kind: 'timeout', message: 'after 30 s' },
  { kind: 'fuel', message: 'burnt 1000' },
  { kind: 'cancelled' },
  { kind: 'fault', message: 'no child' },
  { kind: 'no-node', message: 'enroll one' },
  { kind: 'node-lost', message: 'went away' },
]

test('000-60 000-62 D42 every end has its answer', () => {
  assert.deepEqual(ends.map(answerOf), [
    { ok: true, exitCode: 0 },
    { ok: false, exitCode: 3, error: 'exited with code 3', reason: 'exit' },
    { ok: false, exitCode: 255, error: 'exited with code 255', reason: 'exit' },
    { ok: false, exitCode: null, error: 'unreachable', reason: 'trap' },
    { ok: false, exitCode: null, error: 'over 64 MiB', reason: 'memory' },
    { ok: false, exitCode: null, error: 'after 30 s', reason: 'timeout' },
    { ok: false, exitCode: null, error: 'burnt 1000', reason: 'fuel' },
    { ok: false, exitCode: null, error: 'cancelled: the caller went away' },
    { ok: false, exitCode: null, error: 'no child', reason: 'node-fault' },
    { ok: false, exitCode: null, error: 'enroll one', reason: 'no-node' },
    { ok: false, exitCode: null, error: 'went away', reason: 'node-lost' },
  ])
})

test('000-62 error is text when and only when it failed, though the node said nothing', () => {
  for (const end of [...ends, { kind: 'trap', message: '' } as const]) {
    const answer = answerOf(end)
    assert.equal('error' in answer, !answer.ok)
    if (!answer.ok) assert.ok(answer.error.length > 0)
  }
})

test('D42 exitCode is the guest’s own, and null unless it exited', () => {
  for (const end of ends)
    assert.equal(answerOf(end).exitCode, end.kind === 'exited' ? end.exitCode : null)
})

test('FN-3 text that is UTF-8 is exact; what is none shows U+FFFD and says so', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), (text) => {
      assert.deepEqual(textOf(Buffer.from(text), false), { text, exact: true })
    }),
  )
  assert.deepEqual(textOf(Buffer.from('\uFEFFx'), false), { text: '\uFEFFx', exact: true })
  assert.deepEqual(textOf(Uint8Array.of(0x61, 0xff, 0x62), false), {
    text: 'a\uFFFDb',
    exact: false,
  })
})

test('FN-3 a character that the cap cut in two is left out of the text', () => {
  const cut = Buffer.from('a€').subarray(0, 3)
  assert.deepEqual(textOf(cut, true), { text: 'a', exact: false })
  assert.deepEqual(textOf(cut, false), { text: 'a\uFFFD', exact: false })
})

test('FN-4 a slot books the memory of the runner beside the guest’s', () => {
  const shape = { orgId: 'org_a', cpuMillis: 250, memMb: 64, allowCommunity: true, region: 'blr1' }
  assert.deepEqual(workloadOf(shape), { ...shape, runtime: 'wasm', memMb: 64 + RUNNER_MEM_MB })
})

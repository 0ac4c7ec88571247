import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readLoaded, readPrepared, readResult } from '#wasm/child/answers.ts'

const payload = (value: unknown): Buffer => Buffer.from(JSON.stringify(value))

const measured = {
  durationMs: 1.5,
  memPeakBytes: 65_536,
  fuelUsed: 2,
  last: false,
  stdoutTruncated: false,
  stderrTruncated: false,
}
const exited = { kind: 'exited', exitCode: 3, ...measured }
const trap = { kind: 'trap', message: 'unreachable', ...measured }

test('FN-4 what a child says in JSON is read as our own program says it', () => {
  assert.deepEqual(readResult(payload(exited)), exited)
  assert.deepEqual(readResult(payload({ ...trap, fuelUsed: null })), { ...trap, fuelUsed: null })
  const refused = { ok: false, reason: 'NOT_WASM', message: 'no' }
  assert.deepEqual(readPrepared(payload(refused)), refused)
  assert.deepEqual(readPrepared(payload({ ok: true, kind: 'component' })).ok, true)
  assert.equal(readLoaded(payload({})), undefined)
  assert.equal(readLoaded(payload({ error: 'bad' })), 'bad')
})

test('FN-4 a child that was broken into says nothing else: each wrong result is a violation', () => {
  const wrong: unknown[] = [
    null,
    [],
    'exited',
    { ...exited, exitCode: 256 },
    { ...exited, exitCode: '0' },
    { ...exited, kind: 'cancelled', message: 'x' },
    { ...exited, durationMs: -1 },
    { ...exited, durationMs: 1e300 },
    { ...exited, memPeakBytes: 1e18 },
    { ...exited, fuelUsed: 0.5 },
    { ...exited, last: 0 },
    { ...exited, more: true },
    { ...trap, message: 'x'.repeat(9000) },
    { ...trap, message: { toString: 1 } },
  ]
  for (const each of wrong) assert.throws(() => readResult(payload(each)), /^Error: a result /)
  assert.throws(() => readResult(Buffer.from('{"kind":')), /no JSON/)
  for (const each of [{ ok: true }, { ok: false, reason: 'a b', message: '' }, { ok: 1 }])
    assert.throws(() => readPrepared(payload(each)), /^Error: a result /)
  for (const each of [null, { error: 1 }, { error: 'x'.repeat(9000) }])
    assert.throws(() => readLoaded(payload(each)), /^Error: a loaded /)
})

test('FN-3 a message of a child that was broken into cannot speak to a terminal', () => {
  const said = readResult(payload({ ...trap, message: 'a\u001b[2Jb' }))
  assert.equal(said.kind === 'exited' ? '' : said.message, 'a\\u{1b}[2Jb')
})

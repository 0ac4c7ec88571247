import assert from 'node:assert/strict'
import { test } from 'node:test'
import { waysOf } from '#session/ways.ts'

test('ND-3 a first dial races both transports', () => {
  assert.equal(waysOf(undefined, 0), undefined)
})

test('ND-4 where UDP is blocked a lost engine is looked for over TCP alone, for a minute', () => {
  const last = { transport: 'tls', endedAt: 1_000, dials: 30 } as const
  assert.deepEqual(waysOf(last, 1_000), ['tls'])
  assert.deepEqual(waysOf(last, 60_999), ['tls'])
  assert.equal(waysOf(last, 61_000), undefined)
})

test('ND-20 where UDP works the fleet comes back over it, and races TCP only after two dials in vain', () => {
  const last = { transport: 'quic', endedAt: 0 } as const
  assert.deepEqual(waysOf({ ...last, dials: 0 }, 1_000_000), ['quic'])
  assert.deepEqual(waysOf({ ...last, dials: 1 }, 0), ['quic'])
  assert.equal(waysOf({ ...last, dials: 2 }, 0), undefined)
})

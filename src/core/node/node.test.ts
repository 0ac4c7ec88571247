import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FLEET_MEDIUM, FLEET_SMALL, HEARTBEAT_MS } from '#core/node/limits.ts'
import { effectiveTier, heartbeatMs } from '#core/node/node.ts'

test('D18 beats follow the fleet: an engine receives at most 1,000 a second up to 10,000 nodes', () => {
  const sizes = { small: FLEET_SMALL, medium: FLEET_MEDIUM }
  const beat = (sessions: number): number => heartbeatMs(sessions, HEARTBEAT_MS, sizes)
  assert.deepEqual(
    [0, 999, 1_000, 4_999, 5_000, 10_000].map(beat),
    [1_000, 1_000, 5_000, 5_000, 10_000, 10_000],
  )
  for (let sessions = 1; sessions <= 10_000; sessions += 7)
    assert.ok((sessions / beat(sessions)) * 1_000 <= 1_000)
})

test('D39 the stricter of the record and the agent wins', () => {
  assert.equal(effectiveTier('secure', false), 'secure')
  assert.equal(effectiveTier('secure', true), 'community')
  assert.equal(effectiveTier('community', false), 'community')
  assert.equal(effectiveTier('community', true), 'community')
})

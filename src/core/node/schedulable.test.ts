import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  CONNECTIVITIES,
  effectiveTier,
  heartbeatMs,
  PROVISION_STATES,
  type PlacementNode,
  ROLES,
  TRUSTS,
} from '#core/node/node.ts'
import { schedulable } from '#core/node/schedulable.ts'

const node = (over: Partial<PlacementNode> = {}): PlacementNode => ({
  id: 'node_1',
  orgId: 'org_a',
  nodeId: 'node-a1',
  region: null,
  role: 'host',
  trust: 'tenant-owned',
  trustTier: 'secure',
  provisionState: 'adopted',
  observedGeneration: 1,
  maintenance: false,
  cordoned: false,
  connectivity: 'connected',
  noScheduleReasons: [],
  cpuMillis: null,
  memMb: null,
  runtimes: null,
  usedCpuMillis: 0,
  usedMemMb: 0,
  ...over,
})

/** What fails each check, in the order of ND-12; `bucket` as the requirement names it. */
const failing: [bucket: string, over: Partial<PlacementNode>][] = [
  ['excluded', { role: 'job' }],
  ['excluded', { trust: 'tenant-controlled' }],
  ['maintenance', { cordoned: true }],
  ['provisioning', { provisionState: 'adopting' }],
  ['provisioning', { observedGeneration: 0 }],
  ['unreachable', { connectivity: 'disconnected' }],
  ['unhealthy', { noScheduleReasons: ['draining'] }],
]

test('ND-12 each check alone refuses and names its bucket', () => {
  assert.deepEqual(schedulable(node()), { ok: true })
  for (const [bucket, over] of failing) {
    const verdict = schedulable(node(over))
    assert.ok(!verdict.ok)
    assert.equal(verdict.bucket, bucket, JSON.stringify(over))
  }
  assert.equal(schedulable(node({ maintenance: true })).ok, false)
})

test('ND-12 of any set of failures the first in order names the bucket', () => {
  for (let set = 1; set < 2 ** failing.length; set++) {
    const chosen = failing.filter((_, i) => (set >> i) & 1)
    const verdict = schedulable(node(Object.assign({}, ...chosen.map(([, over]) => over))))
    assert.ok(!verdict.ok)
    assert.equal(verdict.bucket, chosen[0]?.[0])
  }
})

test('ND-12 of every value of an axis only the named ones pass', () => {
  const passing = <T>(key: keyof PlacementNode, values: readonly T[]): T[] =>
    values.filter((value) => schedulable(node({ [key]: value })).ok)
  assert.deepEqual(passing('role', ROLES), ['host'])
  assert.deepEqual(passing('trust', TRUSTS), ['platform', 'tenant-owned'])
  assert.deepEqual(passing('connectivity', CONNECTIVITIES), ['connected'])
  assert.deepEqual(passing('provisionState', PROVISION_STATES), ['adopted', 'deployed'])
})

test('ND-12 the message says which reasons refuse', () => {
  const verdict = schedulable(node({ noScheduleReasons: ['draining', 'taint:gpu'] }))
  assert.ok(!verdict.ok)
  assert.match(verdict.message, /draining, taint:gpu/)
})

test('D39 the stricter of the record and the flag wins', () => {
  assert.equal(effectiveTier('secure', false), 'secure')
  assert.equal(effectiveTier('secure', true), 'community')
  assert.equal(effectiveTier('community', false), 'community')
  assert.equal(effectiveTier('community', true), 'community')
})

test('D18 the beat follows the number of sessions', () => {
  const beats = { small: 1_000, medium: 5_000, large: 10_000 }
  const sizes = { small: 1_000, medium: 5_000 }
  const at = (sessions: number): number => heartbeatMs(sessions, beats, sizes)
  assert.deepEqual(
    [0, 999, 1_000, 4_999, 5_000, 10_000].map(at),
    [1_000, 1_000, 5_000, 5_000, 10_000, 10_000],
  )
})

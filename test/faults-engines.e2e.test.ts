// Two engines on one database and one keyring (design §7, D18): both serve; a node is at one of them.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { refusal, startPlatform } from '#test/platform.ts'

const a = await startPlatform({ after })
const b = await a.secondEngine()
const { orgId } = a
const agent = await a.startNode('node-a1')

test('OP-2 both engines serve the same org: what one made, the other shows', async () => {
  await a.deploy('words', 'word-count/word-count.wasm')
  await b.deploy('from-b', 'word-count/word-count.core.wasm')
  for (const platform of [a, b]) {
    const { functions } = await platform.api.compute.functions.list({ orgId })
    assert.deepEqual(
      functions.map((one) => one.name).toSorted((x, y) => x.localeCompare(y)),
      ['from-b', 'words'],
    )
    assert.equal((await platform.node('node-a1')).schedulable, true)
  }
  // Deployed by B, with artifacts that A finds in the shared store.
  const ran = await a.invoke('from-b', { stdin: 'one two\n' })
  assert.match(ran.stdout, /^\s*1\s+2\s+8\s*$/)
})

test("issue 2: an engine without the node's session answers UNAVAILABLE and says where to go", async () => {
  assert.equal((await a.invoke('words', { stdin: 'x' })).ok, true)
  const began = systemClock.monotonic()
  const refused = await refusal(b.invoke('words', { stdin: 'x' }))
  assert.deepEqual([refused.code, refused.reason], ['UNAVAILABLE', 'node_elsewhere'])
  assert.match(refused.message, /another engine/)
  assert.ok(systemClock.monotonic() - began < 5_000, 'it does not wait for what cannot come')
})

test('ND-9 a node revoked through one engine loses its session at the other', async () => {
  const other = await a.startNode('node-b1')
  const { id } = await a.node('node-b1')
  await b.api.compute.nodes.revoke({ orgId, id })
  assert.equal((await other.program.exited).code, 78)
})

test('ND-2 when its engine is killed the node registers at the other, and its slots go with it', async () => {
  const before = await a.node('node-a1')
  await a.killEngine()
  // One name for both would lead it there by itself.
  await agent.program.stop()
  agent.start(b.sessions)
  const after_ = await b.untilNode(
    'node-a1',
    (node) => node.schedulable && (node.session?.epoch ?? 0) > (before.session?.epoch ?? 0),
    10_000,
  )
  assert.notEqual(after_.session?.gateway_id, before.session?.gateway_id)
  const ran = await b.invoke('words', { stdin: 'moved here\n' })
  assert.match(ran.stdout, /^\s*1\s+2\s+11\s*$/)
  await b.assertConsistent()
})

test('D18 the killed engine comes back: the node stays where it is, and it sends callers there', async () => {
  await a.startEngine()
  const refused = await refusal(a.invoke('words', { stdin: 'x' }))
  assert.deepEqual([refused.code, refused.reason], ['UNAVAILABLE', 'node_elsewhere'])
  assert.equal((await b.invoke('words', { stdin: 'x' })).ok, true)
  const { session } = await a.node('node-a1')
  assert.equal(session?.disconnected_at, null)
  await a.assertConsistent()
})

// Two engines on one database and one keyring (design §7, D18): both serve; a node is at one of them.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { randomBytes } from 'node:crypto'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { refusal, startPlatform, type Platform } from '#test/platform.ts'

const seed = process.env['CLUTCH_SEED'] ?? randomBytes(4).toString('hex')
const a = await startPlatform({ after }, { settings: { 'deploys-per-minute': '100000' } })
const b = await a.secondEngine()
const { orgId } = a
const agent = await a.startNode('node-a1')

test('OP-6 both engines serve the same org: what one made, the other shows', async () => {
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
  assert.deepEqual([refused.code, refused.reason], ['UNAVAILABLE', 'NODE_ELSEWHERE'])
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
  assert.deepEqual([refused.code, refused.reason], ['UNAVAILABLE', 'NODE_ELSEWHERE'])
  assert.equal((await b.invoke('words', { stdin: 'x' })).ok, true)
  const { session } = await a.node('node-a1')
  assert.equal(session?.disconnected_at, null)
  await a.assertConsistent()
})

test(`OP-5 either engine is killed under load on both: what either acknowledged stands, nothing is booked twice, seed ${seed}`, async (t) => {
  const random = seededRandom(`${seed} engines`)
  // One node at each; the first one moved to B above.
  await a.startNode('node-at-a')
  const at = new Map([
    [a, 'node-at-a'],
    [b, 'node-a1'],
  ])
  const told = { deployed: new Set<string>(), ok: 0, refused: 0, odd: new Array<string>() }
  let stop = false
  let serial = 0
  const ask = async <T>(call: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'UNAVAILABLE') told.odd.push(String(error))
      told.refused++
      return undefined
    }
  }
  const work = async (engine: Platform): Promise<void> => {
    while (!stop) {
      const name = `fn-${serial++}`
      const made = await ask(() =>
        engine.deploy(name, 'word-count/word-count.wasm', { cpuMillis: 100 }),
      )
      if (made) told.deployed.add(name)
      const known = [...told.deployed]
      for (let calls = 0; calls < 4 && known.length > 0; calls++) {
        const called = known[random.below(known.length)]!
        const ran = await ask(() => engine.invoke(called, { stdin: 'a b' }))
        if (ran?.ok === true) told.ok++
        else if (ran && ran.reason !== 'node-lost' && ran.reason !== 'no-node')
          told.odd.push(`${called}: ${ran.reason} ${ran.error}`)
      }
      await systemClock.sleep(100)
    }
  }
  const workers = [a, a, b, b].map(work)
  try {
    for (let round = 0; round < 6; round++) {
      await systemClock.sleep(500 + random.below(1_000))
      const victim = random.below(2) === 0 ? a : b
      await victim.killEngine()
      await systemClock.sleep(random.below(500))
      await victim.startEngine()
      await victim.untilNode(at.get(victim)!, (node) => node.schedulable, 6_000)
    }
  } finally {
    stop = true
    await Promise.all(workers)
  }
  t.diagnostic(`${told.deployed.size} deploys, ${told.ok} answers, ${told.refused} refused`)
  assert.deepEqual(told.odd, [], `seed ${seed}`)
  assert.ok(told.deployed.size > 10 && told.ok > 20)
  const { functions } = await b.api.compute.functions.list({ orgId })
  for (const name of told.deployed)
    assert.equal(functions.find((one) => one.name === name)?.version, 1, `${name}, seed ${seed}`)
  await a.assertConsistent()
  await b.assertConsistent()
})

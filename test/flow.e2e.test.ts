// The walking skeleton through real processes: what a person can do with nodes and functions, and what each refusal says.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { openFiles } from '#sim/bench/process-tree.ts'
import { startPlatform, refusal, type Invoked } from '#test/platform.ts'

const platform = await startPlatform({ after }, { settings: { 'sign-up': 'open' } })
const { orgId } = platform
const { compute } = platform.api

const wc = (input: Buffer): string =>
  spawnSync('wc', { input, env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' } }).stdout.toString()

const events = async (subject: string): Promise<string[]> =>
  (await compute.events.list({ orgId, subject })).events.map((event) => event.kind)

/** Until the invocation's guest has been handed to a node: its slot is booked and busy there. */
test('ND-1 000-17 000-27 a node is enrolled, dials in, is accepted, and shows its manifest', async () => {
  const { node, token } = await platform.enroll('node-a1', { label: 'first', region: 'blr1' })
  assert.equal(node.provision_state, 'adopting')
  assert.equal(node.connectivity, 'disconnected')
  assert.equal(node.generation, 0)
  assert.equal(node.manifest, null)
  assert.equal(node.schedulable, false)
  assert.match(token, /^clt_n_[A-Za-z0-9_-]+$/)

  platform.startAgent('node-a1', token)
  const adopted = await platform.untilNode('node-a1', (one) => one.schedulable)
  assert.equal(adopted.id, node.id)
  assert.equal(adopted.provision_state, 'adopted')
  assert.equal(adopted.generation, 1)
  assert.equal(adopted.observed_generation, 1)
  assert.equal(adopted.connectivity, 'connected')
  assert.equal(adopted.session?.transport, 'quic')
  assert.equal(adopted.session?.epoch, 1)
  assert.deepEqual(adopted.manifest?.runtimes, ['wasm'])
  assert.ok((adopted.manifest?.cpu_millis ?? 0) >= 1000)
  const kinds = await events(node.id)
  assert.ok(kinds.includes('node.enrolled') && kinds.includes('node.registered'), kinds.join())
})

for (const file of ['word-count/word-count.wasm', 'word-count/word-count.core.wasm'])
  test(`FN-1 FN-3 000-58 ${file} is deployed, invoked, and counts what wc counts`, async () => {
    const name = file.includes('core') ? 'words-core' : 'words'
    const record = await platform.deploy(name, file)
    assert.equal(record.version, 1)
    assert.equal(record.cpu_millis, 250)
    const readme = readFileSync(join(import.meta.dirname, '../examples/README.md'))
    for (const stdin of [Buffer.of(), readme, randomBytes(700_000)]) {
      const ran = await platform.invoke(name, { stdinBase64: stdin.toString('base64') })
      assert.equal(ran.ok, true, JSON.stringify(ran))
      assert.equal(ran.exitCode, 0)
      assert.equal(ran.error, undefined)
      assert.deepEqual(ran.stdout.trim().split(/\s+/), wc(stdin).trim().split(/\s+/))
      assert.equal(ran.node_id, 'node-a1')
      assert.equal(ran.trust_tier, 'secure')
      assert.ok((ran.fuelUsed ?? 0) > stdin.length, `${ran.fuelUsed}`)
      assert.ok(ran.durationMs > 0 && ran.durationMs < 20_000)
    }
  })

test('000-60 D42 exit codes pass unchanged, arguments and environment arrive, bytes come back exactly', async () => {
  await platform.deploy('probe', 'probe/probe.wasm')
  for (const code of [0, 1, 137, 255]) {
    const ran = await platform.probe('probe', ['out', 'before', 'exit', `${code}`])
    assert.equal(ran.exitCode, code)
    assert.equal(ran.ok, code === 0)
    assert.equal(ran.reason, code === 0 ? undefined : 'exit')
    assert.equal(ran.error === undefined, code === 0)
    assert.equal(ran.stdout, 'before\n')
  }
  const ran = await platform.probe('probe', ['args', 'env'], { env: { GREETING: 'grüß dich' } })
  assert.match(ran.stdout, /\nenv\nGREETING=grüß dich\n$/)
  const bytes = Buffer.from([0xff, 0x00, 0xc3, 0x28])
  const echoed = await platform.probe('probe', ['echo'], { stdinBase64: bytes.toString('base64') })
  assert.equal(echoed.stdoutBase64, bytes.toString('base64'))
  const flood = await platform.probe('probe', [
    'stdout',
    '3000000',
    'stderr',
    '600000',
    'exit',
    '4',
  ])
  assert.equal(flood.exitCode, 4)
  assert.equal(flood.stdout.length, 1024 * 1024)
  assert.equal(flood.stderr.length, 256 * 1024)
  assert.deepEqual([flood.stdoutTruncated, flood.stderrTruncated], [true, true])
})

const GROWS_THEN_TRAPS = `(module
  (memory (export "memory") 1)
  (func (export "_start")
    (if (i32.eq (memory.grow (i32.const 60000)) (i32.const -1)) (then unreachable))))`

test('FN-3 000-62 every way to fail has its reason, its text, and no exit code', async () => {
  await platform.deploy('greedy', await parse(GROWS_THEN_TRAPS))
  await platform.deploy('nowhere', 'probe/probe.wasm', { region: 'moon-1' })
  await platform.deploy('too-big', 'probe/probe.wasm', { cpuMillis: 16_000, memMb: 4_096 })
  const failed = async (ran: Promise<Invoked>): Promise<Invoked> => {
    const answer = await ran
    assert.equal(answer.ok, false)
    assert.equal(answer.exitCode, null)
    assert.ok(answer.error)
    return answer
  }
  const trap = await failed(platform.probe('probe', ['out', 'before', 'trap', 'divide']))
  assert.equal(trap.reason, 'trap')
  assert.equal(trap.stdout, 'before\n')
  assert.equal((await failed(platform.probe('probe', ['recurse', 'forever']))).reason, 'trap')
  assert.equal((await failed(platform.invoke('greedy'))).reason, 'memory')
  const began = systemClock.monotonic()
  const timeout = await failed(platform.probe('probe', ['spin', 'forever'], { timeoutMs: 500 }))
  assert.equal(timeout.reason, 'timeout')
  assert.ok(timeout.durationMs >= 500 && systemClock.monotonic() - began < 5_000)
  const nowhere = await failed(platform.invoke('nowhere'))
  assert.equal(nowhere.reason, 'no-node')
  assert.match(nowhere.error ?? '', /moon-1/)
  assert.equal(nowhere.node_id, null)
  assert.equal((await failed(platform.invoke('too-big'))).reason, 'no-node')
  // The function that was killed serves again.
  assert.equal((await platform.probe('probe', ['out', 'again'])).stdout, 'again\n')
})

test('FN-7 a redeploy keeps what runs on the old bytes; rollback; delete; the history says which version ran', async () => {
  await platform.deploy('changing', 'probe/probe.wasm')
  const old = platform.probe('changing', ['sleep', '1500', 'out', 'old bytes'])
  await platform.untilRunning(1)
  const redeployed = await platform.deploy('changing', 'word-count/word-count.wasm')
  assert.equal(redeployed.version, 2)
  const fresh = await platform.invoke('changing', { stdin: 'one two\n' })
  assert.match(fresh.stdout, /^\s*1\s+2\s+8\s*$/)
  assert.equal((await old).stdout, 'old bytes\n')

  await compute.functions.rollback({ orgId, name: 'changing' })
  assert.equal((await platform.probe('changing', ['out', 'back'])).stdout, 'back\n')
  const { function: record, versions } = await compute.functions.get({ orgId, name: 'changing' })
  assert.equal(record.version, 1)
  assert.deepEqual(
    versions.map(({ version, current }) => [version, current]),
    [
      [2, false],
      [1, true],
    ],
  )
  const { invocations } = await until('the history is written', async () => {
    const page = await compute.functions.invocations({ orgId, name: 'changing' })
    return page.invocations.length === 3 ? page : undefined
  })
  assert.deepEqual(
    invocations.map((one) => one.version).toSorted((a, b) => a - b),
    [1, 1, 2],
  )
  assert.ok(invocations.every((one) => one.ok && one.node_id === 'node-a1'))

  const last = platform.probe('changing', ['sleep', '1000', 'out', 'undisturbed'])
  await platform.untilRunning(1)
  await compute.functions.delete({ orgId, name: 'changing' })
  const gone = await refusal(platform.invoke('changing'))
  assert.equal(gone.code, 'NOT_FOUND')
  assert.equal((await last).stdout, 'undisturbed\n')
  const { functions } = await compute.functions.list({ orgId })
  assert.ok(functions.every((one) => one.name !== 'changing'))
  const { rows } = await until('its slots are given back', async () => {
    const found = await sql`select from slots where function_name = 'changing'`.execute(
      platform.store,
    )
    return found.rows.length === 0 ? found : undefined
  })
  assert.equal(rows.length, 0)
})

test('000-43 000-44 a draining node keeps what it runs and gets nothing new; resuming places what waits', async () => {
  const node = await platform.node('node-a1')
  const running = platform.probe('probe', ['sleep', '1200', 'out', 'kept'])
  await platform.untilRunning(1)
  const { node: draining } = await compute.nodes.setDraining({
    orgId,
    id: node.id,
    draining: true,
  })
  assert.equal(draining.draining, true)
  assert.ok(draining.no_schedule_reasons.includes('draining'))
  assert.equal(draining.connectivity, 'connected')
  let answered = false
  const waiting = platform.invoke('words', { stdin: 'a\n' }).finally(() => (answered = true))
  assert.equal((await running).stdout, 'kept\n')
  assert.equal(answered, false)
  const explained = await compute.placement.explain({ orgId, name: 'words' })
  assert.equal(explained.placeable, false)
  assert.match(explained.summary, /drain/)
  await compute.nodes.setDraining({ orgId, id: node.id, draining: false })
  const resumedAt = systemClock.monotonic()
  assert.equal((await waiting).ok, true)
  assert.ok(systemClock.monotonic() - resumedAt < 1_500, 'placed within a second of resuming')
})

test('ND-4 000-23 a wrong node id is refused with the reason; a stolen token does not bind a second key', async () => {
  const { node, token } = await platform.enroll('node-b1')
  const wrong = platform.startAgent('node-b2', token)
  assert.equal((await wrong.program.exited).code, 78)
  assert.match(wrong.log, /node-b2/)
  const right = platform.startAgent('node-b1', token)
  await platform.untilNode('node-b1', (one) => one.schedulable)
  const thief = platform.startAgent('node-b1', token)
  assert.equal((await thief.program.exited).code, 78)
  assert.match(thief.log, /KEY_MISMATCH/)
  assert.ok((await events(node.id)).includes('node.key-mismatch'))
  assert.equal((await platform.node('node-b1')).connectivity, 'connected')
  assert.ok(right.program.running)
})

test('000-11 an agent that starts again is the same node with the next epoch', async () => {
  const [agent] = platform.agents.filter((one) => one.nodeId === 'node-b1')
  const before = await platform.node('node-b1')
  await agent!.program.stop()
  await platform.untilNode('node-b1', (one) => one.connectivity === 'disconnected', 5_000)
  agent!.start()
  const back = await platform.untilNode('node-b1', (one) => one.schedulable)
  assert.equal(back.id, before.id)
  assert.ok((back.session?.epoch ?? 0) > (before.session?.epoch ?? 0))
  const { nodes } = await compute.nodes.list({ orgId })
  assert.equal(nodes.filter((one) => one.node_id === 'node-b1').length, 1)
})

test('000-45 000-46 000-21 revoke ends the session: the agent exits 78 with the reason, and the name is free again', async () => {
  const agent = platform.agents.findLast((one) => one.nodeId === 'node-b1' && one.program.running)!
  const before = await platform.node('node-b1')
  const oldToken = await compute.nodes.revoke({ orgId, id: before.id })
  assert.equal(oldToken.node.id, before.id)
  assert.equal((await agent.program.exited).code, 78)
  assert.match(agent.log, /NODE_REVOKED: .*node-b1 was revoked/)
  const { nodes } = await compute.nodes.list({ orgId })
  assert.ok(nodes.every((one) => one.node_id !== 'node-b1'))
  agent.start()
  assert.equal((await agent.program.exited).code, 78)

  const again = await platform.enroll('node-b1')
  assert.notEqual(again.node.id, before.id)
  agent.start()
  assert.equal((await agent.program.exited).code, 78, 'the old credential stays dead')
  platform.startAgent('node-b1', again.token)
  const back = await platform.untilNode('node-b1', (one) => one.schedulable)
  assert.equal(back.id, again.node.id)
  await compute.nodes.revoke({ orgId, id: back.id })
})

test('000-47 a node that was drained first is revoked without disturbing what it ran', async () => {
  const agent = await platform.startNode('node-g1', { region: 'drained-1' })
  const { id } = await platform.node('node-g1')
  await platform.deploy('drained', 'probe/probe.wasm', { region: 'drained-1' })
  const running = platform.probe('drained', ['sleep', '800', 'out', 'to the end'])
  await platform.untilRunning(1)
  await compute.nodes.setDraining({ orgId, id, draining: true })
  const ran = await running
  assert.deepEqual([ran.ok, ran.stdout, ran.node_id], [true, 'to the end\n', 'node-g1'])
  await compute.nodes.revoke({ orgId, id })
  assert.equal((await agent.program.exited).code, 78)
})

test('000-32 000-33 000-34 a community node gets a workload only with its opt-in', async () => {
  const node = await platform.node('node-a1')
  await platform.startNode('node-c1', { trustTier: 'community', contributor: 'somebody' })
  await compute.nodes.setDraining({ orgId, id: node.id, draining: true })
  await platform.deploy('opted-in', 'probe/probe.wasm', { allowCommunity: true })
  const ran = await platform.probe('opted-in', ['out', 'here'])
  assert.deepEqual([ran.node_id, ran.trust_tier], ['node-c1', 'community'])
  await platform.deploy('not-opted', 'probe/probe.wasm')
  const explained = await compute.placement.explain({ orgId, name: 'not-opted' })
  assert.equal(explained.placeable, false)
  const community = explained.nodes.find((one) => one.node_id === 'node-c1')
  assert.match(community?.message ?? '', /community/i)
  const waited = 'clutch_placements_total{outcome="waited"}'
  const waitedBefore = await platform.metric(waited)
  const waiting = platform.probe('not-opted', ['out', 'here'])
  await until('it waits', async () => (await platform.metric(waited)) > waitedBefore)
  await compute.nodes.setDraining({ orgId, id: node.id, draining: false })
  const secure = await waiting
  assert.deepEqual([secure.node_id, secure.trust_tier], ['node-a1', 'secure'])
})

test("000-35 000-36 setTrustTier waits for the node's next REGISTER and evicts nothing", async () => {
  const agent = await platform.startNode('node-d1', { region: 'tier-1' })
  const node = await platform.node('node-d1')
  await platform.deploy('tiered', 'probe/probe.wasm', { region: 'tier-1' })
  const running = platform.probe('tiered', ['sleep', '1500', 'out', 'not evicted'])
  await platform.untilRunning(1)
  const { node: pending } = await compute.nodes.setTrustTier({
    orgId,
    id: node.id,
    trustTier: 'community',
  })
  assert.deepEqual([pending.trust_tier, pending.pending_trust_tier], ['secure', 'community'])
  const until_ = await platform.probe('tiered', ['out', 'still secure'])
  assert.deepEqual([until_.node_id, until_.trust_tier], ['node-d1', 'secure'])
  assert.equal((await running).stdout, 'not evicted\n')
  await agent.program.stop()
  agent.start()
  const after_ = await platform.untilNode('node-d1', (one) => one.trust_tier === 'community')
  assert.equal(after_.pending_trust_tier, null)
  const explained = await compute.placement.explain({ orgId, name: 'tiered' })
  assert.equal(explained.placeable, false)
  const { work } = await compute.nodes.get({ orgId, id: node.id })
  assert.ok(
    work.some((one) => one.function === 'tiered'),
    'its slot stands',
  )
  await compute.nodes.revoke({ orgId, id: node.id })
  assert.equal((await agent.program.exited).code, 78)
})

test('000-39 a fresh last_seen_at without a session gives no placement', async () => {
  const agent = await platform.startNode('node-e1', {
    region: 'seen-1',
    // Over TCP the kernel tells at once that the agent is gone.
    flags: ['--transport', 'tls'],
  })
  await platform.deploy('seen', 'probe/probe.wasm', { region: 'seen-1' })
  assert.equal((await platform.probe('seen', ['out', 'x'])).ok, true)
  await agent.program.kill()
  const node = await platform.untilNode('node-e1', (one) => one.connectivity !== 'connected')
  await sql`update nodes set last_seen_at = ${new Date()} where id = ${node.id}`.execute(
    platform.store,
  )
  const shown = await platform.node('node-e1')
  assert.ok(systemClock.now() - Date.parse(shown.last_seen_at ?? '') < 5_000)
  assert.equal(shown.schedulable, false)
  assert.equal(shown.unschedulable?.bucket, 'unreachable')
  const ran = await platform.probe('seen', ['out', 'x'])
  assert.deepEqual([ran.ok, ran.reason, ran.node_id], [false, 'no-node', null])
  await compute.nodes.revoke({ orgId, id: node.id })
})

/** Inet sockets of a process and its children: protocol, local and remote 'address:port' in /proc/net's hex, state. */
function inetSockets(pids: readonly number[]): { kind: string; remote: string; state: string }[] {
  const own = new Set(pids.flatMap((pid) => openFiles(pid)))
  return ['tcp', 'tcp6', 'udp', 'udp6'].flatMap((kind) =>
    readFileSync(`/proc/${pids[0]}/net/${kind}`, 'utf8')
      .split('\n')
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => own.has(`socket:[${fields[9]}]`))
      .map((fields) => ({ kind, remote: fields[2] ?? '', state: fields[3] ?? '' })),
  )
}

for (const transport of ['quic', 'tls'] as const)
  test(`000-48 000-49 000-03 running a function over ${transport} makes the node open no connection but to the engine`, async () => {
    const nodeId = `node-f-${transport}`
    const region = `sockets-${transport}`
    const agent = await platform.startNode(nodeId, { region, flags: ['--transport', transport] })
    await platform.deploy(`sockets-${transport}`, 'probe/probe.wasm', { region })
    const ran = platform.probe(`sockets-${transport}`, ['stdout', '500000', 'sleep', '1500'])
    const port = Number(platform.sessions.split(':')[1])
    const engine = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
    let looks = 0
    let done = false
    ran.then(
      () => (done = true),
      () => (done = true),
    )
    while (!done) {
      const pids = [agent.program.pid, ...agent.children().map((one) => one.pid)]
      for (const { kind, remote, state } of inetSockets(pids)) {
        // 0A listens: nobody dials a node.
        assert.notEqual(state, '0A', `${kind} listens`)
        if (kind.startsWith('tcp')) assert.equal(remote, engine)
        else assert.equal(transport, 'quic', 'UDP over TLS')
      }
      const below = agent.children().map((one) => one.pid)
      if (below.length > 0) assert.deepEqual(inetSockets(below), [], 'a guest has no socket')
      looks++
      await systemClock.sleep(50)
    }
    assert.equal((await ran).ok, true)
    assert.ok(looks > 10)
    const node = await platform.node(nodeId)
    assert.equal(node.session?.transport, transport)
    await compute.nodes.revoke({ orgId, id: node.id })
  })

test('000-02 000-75 D45 two orgs see nothing of each other', async () => {
  const other = await platform.otherOrg('acme')
  const theirs = other.api.compute
  assert.deepEqual((await theirs.nodes.list({ orgId: other.orgId })).nodes, [])
  assert.deepEqual((await theirs.functions.list({ orgId: other.orgId })).functions, [])
  const node = await platform.node('node-a1')
  const refusals = await Promise.all([
    refusal(theirs.nodes.list({ orgId })),
    refusal(theirs.functions.invoke({ orgId, name: 'words' })),
    refusal(theirs.nodes.revoke({ orgId, id: node.id })),
    refusal(theirs.nodes.get({ orgId: other.orgId, id: node.id })),
    refusal(theirs.nodes.revoke({ orgId: other.orgId, id: node.id })),
    refusal(theirs.functions.get({ orgId: other.orgId, name: 'words' })),
    refusal(theirs.functions.invoke({ orgId: other.orgId, name: 'words' })),
    refusal(compute.functions.list({ orgId: other.orgId })),
  ])
  assert.deepEqual(
    refusals.map((one) => one.code),
    [
      'FORBIDDEN',
      'FORBIDDEN',
      'FORBIDDEN',
      'NOT_FOUND',
      'NOT_FOUND',
      'NOT_FOUND',
      'NOT_FOUND',
      'FORBIDDEN',
    ],
  )
  // Their function of the same name does not run on our nodes.
  const component = readFileSync(
    join(import.meta.dirname, '../examples/word-count/word-count.wasm'),
  ).toString('base64')
  await theirs.functions.deploy({ orgId: other.orgId, name: 'words', component, cpuMillis: 100 })
  const ran = await theirs.functions.invoke({ orgId: other.orgId, name: 'words' })
  assert.deepEqual([ran.ok, ran.reason, ran.node_id], [false, 'no-node', null])
  assert.match(ran.error ?? '', /enroll/)
  const enrolled = await theirs.nodes.enroll({
    orgId: other.orgId,
    nodeId: 'node-a1',
    trustTier: 'secure',
  })
  assert.notEqual(enrolled.node.id, node.id)
  const theirEvents = await theirs.events.list({ orgId: other.orgId })
  assert.ok(theirEvents.events.every((event) => event.subject !== node.id))
})

test('PL-4 after all of it, what is booked is what stands, and no process waits to be reaped', async () => {
  await platform.assertConsistent()
})

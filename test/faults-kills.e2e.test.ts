// kill -9 of engine, node and Postgres in the middle of deploys, enrollments and invocations.
// What was acknowledged is there, what was answered is right, what is booked is what stands, and nothing is left over.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { descendants, isGone } from '#sim/bench/process-tree.ts'
import { until } from '#lib/until.ts'
import { describe, startPlatform, type Agent } from '#test/platform.ts'

const IMAGE_FILTER = join(import.meta.dirname, '../examples/image-filter/image-filter.wasm')
const seed = process.env['CLUTCH_SEED'] ?? randomBytes(4).toString('hex')
const ROUNDS = process.env['CLUTCH_SOAK'] === '1' ? 40 : 9
/** "The session is back within 5 s of the engine." */
const BACK_WITHIN_MS = 5_000

const platform = await startPlatform(
  { after },
  { settings: { 'deploys-per-minute': '100000', 'enrolls-per-minute': '100000' } },
)
const { orgId } = platform
const { compute } = platform.api
const random = seededRandom(`${seed} kills`)

const agents: Agent[] = []
for (const nodeId of ['node-k1', 'node-k2']) agents.push(await platform.startNode(nodeId))
await platform.deploy('steady', 'word-count/word-count.wasm', { cpuMillis: 100 })

/** What the clients were told, and what they should not have been told. */
const told = {
  deployed: new Map<string, string>(),
  enrolled: new Map<string, string>(),
  answers: { ok: 0, lost: 0, unavailable: 0 },
  odd: new Array<string>(),
}

/** The answer; undefined when the platform said that it cannot now. Anything else it says is odd. */
async function ask<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call()
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'UNAVAILABLE')
      told.odd.push(`${what}: ${String(error)}`)
    told.answers.unavailable++
    return undefined
  }
}

const load = { stop: false, serial: 0 }

async function deployer(): Promise<void> {
  while (!load.stop) {
    const n = load.serial++
    const name = `fn-${n}`
    const file = n % 2 === 0 ? 'word-count/word-count.wasm' : 'word-count/word-count.core.wasm'
    const record = await ask(name, () => platform.deploy(name, file, { cpuMillis: 100 }))
    if (record) {
      told.deployed.set(name, record.sha256)
      if (record.version !== 1) told.odd.push(`${name} was deployed ${record.version} times`)
    }
    await systemClock.sleep(200)
  }
}

async function enroller(): Promise<void> {
  while (!load.stop) {
    const nodeId = `idle-${load.serial++}`
    const made = await ask(nodeId, () =>
      compute.nodes.enroll({ orgId, nodeId, trustTier: 'secure' }),
    )
    // A repeated call whose first answer was lost shows no token a second time (D40).
    if (made) told.enrolled.set(nodeId, made.node.id)
    await systemClock.sleep(250)
  }
}

async function invoker(name: string): Promise<void> {
  while (!load.stop) {
    const words = load.serial++ % 50
    const stdin = 'word '.repeat(words)
    const ran = await ask(name, () => platform.invoke(name, { stdin }))
    if (ran === undefined) await systemClock.sleep(50)
    else if (ran.ok) {
      told.answers.ok++
      const [lines, counted, bytes] = ran.stdout.trim().split(/\s+/).map(Number)
      if (lines !== 0 || counted !== words || bytes !== stdin.length)
        told.odd.push(`${words} words: ${ran.stdout}`)
    } else if (ran.reason === 'node-lost' || ran.reason === 'no-node') told.answers.lost++
    else told.odd.push(`${name}: ${ran.reason} ${ran.error}`)
  }
}

const back: number[] = []

async function killEngine(): Promise<void> {
  await platform.killEngine()
  await platform.startEngine()
  const ready = systemClock.monotonic()
  for (const { nodeId } of agents)
    await platform.untilNode(nodeId, (node) => node.schedulable, BACK_WITHIN_MS)
  back.push(Math.round(systemClock.monotonic() - ready))
}

async function killAgent(): Promise<void> {
  const agent = agents[random.below(agents.length)]!
  const { session } = await until('the API answers', () => platform.node(agent.nodeId))
  const children = agent.children()
  await agent.program.kill()
  await until(
    () => `children of a killed agent are gone:\n${describe(children.filter((c) => !isGone(c)))}`,
    () => children.every(isGone) || undefined,
    2_000,
  )
  agent.start()
  await platform.untilNode(
    agent.nodeId,
    (node) => node.schedulable && (node.session?.epoch ?? 0) > (session?.epoch ?? 0),
  )
}

async function killPostgres(): Promise<void> {
  const postmaster = platform.postmaster()
  assert.ok(postmaster, 'Postgres runs')
  process.kill(postmaster.pid, 'SIGKILL')
  await until('Postgres runs again', () => {
    const now = platform.postmaster()
    return now !== undefined && now.startedAt !== postmaster.startedAt ? now : undefined
  })
  await platform.untilReady()
}

test(`OP-5 kill -9 of engine, node and Postgres under load, ${ROUNDS} rounds, seed ${seed}`, async (t) => {
  const workers = [deployer(), deployer(), enroller(), invoker('steady'), invoker('steady')]
  workers.push(invoker('steady'))
  const kills = [killEngine, killAgent, killPostgres]
  try {
    for (let round = 0; round < ROUNDS; round++) {
      await systemClock.sleep(200 + random.below(1_000))
      // Each kind comes in every three rounds, in an order of its own.
      if (round % kills.length === 0) kills.sort(() => random.float() - 0.5)
      const kill = kills[round % kills.length]!
      t.diagnostic(`round ${round}: ${kill.name}`)
      await kill()
    }
    await systemClock.sleep(500)
  } finally {
    load.stop = true
    await Promise.all(workers)
  }
  const { ok, lost, unavailable } = told.answers
  t.diagnostic(
    `${told.deployed.size} deploys and ${told.enrolled.size} enrollments acknowledged; invocations: ${ok} answered, ${lost} lost; ${unavailable} calls refused; sessions back in ${back.join(', ')} ms`,
  )
  assert.deepEqual(told.odd, [], `seed ${seed}`)
  assert.ok(ok > 20 && told.deployed.size > 5 && told.enrolled.size > 5)
})

test('OP-5 D51 an engine killed while it prepares leaves no child; the call with the same key makes one version after it', async () => {
  // A memory cap that nobody used yet: there is something to prepare.
  const body = JSON.stringify({
    orgId,
    name: 'prepared',
    component: readFileSync(IMAGE_FILTER).toString('base64'),
    cpuMillis: 100,
    memMb: 80,
  })
  const headers = {
    'content-type': 'application/json',
    'x-api-key': platform.key,
    'idempotency-key': `prepared-${seed}`,
  }
  const deploy = (): Promise<Response> =>
    fetch(`${platform.url}/v1/functions`, { method: 'POST', headers, body })
  const cut = deploy().then(
    () => 'answered',
    () => 'cut off',
  )
  const preparing = await until('a component is being prepared', () => {
    const below = descendants(platform.engine.pid)
    return below.find((one) => one.command.includes('--permission'))
  })
  await platform.killEngine()
  assert.equal(await cut, 'cut off')
  await until('the preparing child is gone', () => isGone(preparing) || undefined, 2_000)
  await platform.startEngine()
  for (let call = 0; call < 2; call++) {
    const again = await deploy()
    assert.equal(again.status, 200, await again.clone().text())
    assert.equal((await functionOf(again)).version, 1)
  }
  for (const { nodeId } of agents) await platform.untilNode(nodeId, (node) => node.schedulable)
  const ran = await platform.invoke('prepared', { args: ['gray'], stdin: 'P6 1 1 255 abc' })
  assert.equal(ran.exitCode, 0, JSON.stringify(ran))
})

async function functionOf(response: Response): Promise<{ version: number }> {
  const { function: made } = (await response.json()) as { function: { version: number } }
  return made
}

test('OP-5 every acknowledged deploy stands once, with its bytes, and runs', async () => {
  const { functions } = await compute.functions.list({ orgId })
  const standing = new Map(functions.map((one) => [one.name, one]))
  for (const [name, sha256] of told.deployed) {
    assert.equal(standing.get(name)?.sha256, sha256, `${name}, seed ${seed}`)
    assert.equal(standing.get(name)?.version, 1, `${name}, seed ${seed}`)
  }
  for (const name of told.deployed.keys()) {
    const ran = await platform.invoke(name, { stdin: 'still here\n' })
    assert.equal(ran.ok, true, `${name}: ${JSON.stringify(ran)}, seed ${seed}`)
    assert.match(ran.stdout, /^\s*1\s+2\s+11\s*$/)
  }
})

test('OP-5 every acknowledged enrollment stands once', async () => {
  const { nodes } = await compute.nodes.list({ orgId })
  for (const [nodeId, id] of told.enrolled)
    assert.deepEqual(
      nodes.filter((one) => one.node_id === nodeId).map((one) => one.id),
      [id],
      `seed ${seed}`,
    )
})

test('OP-5 nothing is left over: booked sums, processes, children of the engine', async () => {
  await platform.assertConsistent()
  const postgres = platform.postmaster()
  assert.ok(postgres)
  const below = descendants(platform.engine.pid).filter(
    (one) => one.pid !== postgres.pid && one.parent !== postgres.pid,
  )
  assert.deepEqual(describe(below), '', 'the engine has no child but Postgres')
})

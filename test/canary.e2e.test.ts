// 000-18: no secret stands anywhere but where its owner was given it. Each kind of secret goes once through real
// processes that log all they can; then everything they left is searched.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { sql } from 'kysely'
import { z } from 'zod'
import { allProcesses } from '#sim/bench/process-tree.ts'
import { until } from '#lib/until.ts'
import { refusal, startPlatform } from '#test/platform.ts'

const platform = await startPlatform(
  { after },
  { settings: { 'sign-up': 'open', 'log-level': 'trace', 'sign-ins-per-minute': '1000' } },
)
const { orgId, api } = platform
const canary = (name: string): string => `canary-${name}-${randomBytes(12).toString('hex')}`

/** Secrets by what they are. */
const secrets = new Map<string, string>()
/** What the API said, where and what: nothing of it may show a secret. */
const answers: string[] = []

function plant(name: string, secret: string | null | undefined): string {
  assert.ok(secret, `${name} was given`)
  secrets.set(name, secret)
  return secret
}

/** How a secret may look: itself, and as base64 at each of its three alignments, and as hex. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const shifted = [0, 1, 2].map((shift) => {
    const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
    // The first and last groups depend on what stands beside it.
    return text.slice(shift === 0 ? 0 : 4, -4)
  })
  return [secret, ...shifted, bytes.toString('hex')]
}

const stands = (secret: string, text: string): boolean =>
  formsOf(secret).some((form) => text.includes(form))

/** Where any of the secrets stands in the text. */
function found(where: string, text: string): string[] {
  return [...secrets].flatMap(([name, secret]) =>
    stands(secret, text) ? [`${name} in ${where}`] : [],
  )
}

/** No secret: what a search must find, or it finds nothing at all. */
const label = canary('label')

async function post(
  path: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${platform.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', origin: platform.url, ...headers },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
}

const Enrolled = z.object({
  node: z.object({ id: z.string() }),
  token: z.string().nullable(),
  notice: z.string().optional(),
})

test('000-17 000-19 D40 a token is in the answer of its call alone: the replay of that call is without it', async () => {
  const headers = {
    authorization: `Bearer ${platform.key}`,
    'idempotency-key': `key-${randomBytes(8).toString('hex')}`,
  }
  const body = { orgId, nodeId: 'node-c1', trustTier: 'secure', label }
  const first = Enrolled.parse((await post('/v1/nodes', body, headers)).body)
  const token = plant('enroll token', first.token)
  const again = await post('/v1/nodes', body, headers)
  answers.push(JSON.stringify(again))
  assert.equal(again.status, 200)
  const replay = Enrolled.parse(again.body)
  assert.deepEqual([replay.node.id, replay.token], [first.node.id, null])
  assert.match(replay.notice ?? '', /TOKEN_ALREADY_SHOWN/)
  const other = await post('/v1/nodes', { ...body, label: 'another body' }, headers)
  answers.push(JSON.stringify(other))
  assert.equal(other.status, 409)

  const agent = platform.startAgent('node-c1', token, { flags: ['--log-level', 'debug'] })
  await platform.untilNode('node-c1', (node) => node.schedulable)
  const renewed = await api.compute.nodes.revokeIdentity({ orgId, id: first.node.id })
  plant('token after revokeIdentity', renewed.token)
  await agent.program.exited
  agent.setToken(secrets.get('token after revokeIdentity') ?? '')
  agent.start()
  await platform.untilNode('node-c1', (node) => node.schedulable && node.identity_generation === 2)
})

test('AC-1 000-75 keys, sign-ins, passwords and links are shown once', async () => {
  const org = await platform.otherOrg('acme')
  plant('API key', org.key)
  plant('sign-in', org.signIn)
  plant('password', org.password)
  const person = platform.apiAs(org.signIn, 'session')
  answers.push(JSON.stringify(await person.access.whoami({})))
  const invited = await person.access.invitations.create({
    orgId: org.orgId,
    email: 'friend@example.com',
  })
  const link = plant('invitation', invited.link?.split('#').at(-1))
  answers.push(JSON.stringify(await org.api.access.keys.list({ orgId: org.orgId })))
  answers.push(JSON.stringify(await org.api.compute.events.list({ orgId: org.orgId })))

  // Wrong ones are secrets too: of somebody who mistyped.
  const wrongKey = plant('unknown API key', `clt_k_${canary('key')}`)
  answers.push(JSON.stringify(await refusal(platform.apiAs(wrongKey).access.whoami({}))))
  const wrongPassword = plant('wrong password', canary('password'))
  answers.push(
    JSON.stringify(
      await post('/api/auth/sign-in/email', { email: 'acme@example.com', password: wrongPassword }),
    ),
  )
  const joined = await post('/invitation', {
    token: link,
    name: 'friend',
    email: 'friend@example.com',
    password: plant("a friend's password", canary('friend')),
  })
  assert.equal(joined.status, 200)
  const unknown = {
    token: plant('unknown link', canary('link')),
    name: 'x',
    email: 'x@example.com',
  }
  answers.push(JSON.stringify(await post('/setup', { ...unknown, password: canary('unused') })))
})

test('FN-3 what an invocation is given stands in no list, log, row, or argv', async () => {
  const env = { SECRET: plant('env value', canary('env')) }
  const stdin = plant('stdin', canary('stdin'))
  const args = ['out', plant('argument', canary('argument')), 'sleep', '700', 'exit', '9']
  await platform.deploy('probe', 'probe/probe.wasm')
  const running = platform.invoke('probe', { args, env, stdin })
  let looks = 0
  const ended = running.then(() => true)
  while (
    !(await Promise.race([ended, new Promise<false>((go) => setTimeout(() => go(false), 50))]))
  )
    for (const { pid, command } of allProcesses()) {
      looks++
      if (pid !== process.pid) assert.deepEqual(found(`argv of ${pid}`, command), [])
    }
  assert.ok(looks > 20)
  const ran = await running
  assert.deepEqual([ran.exitCode, ran.stdout], [9, `${args[1]}\n`])
  // Each way to fail, with the same secrets: their messages go into logs and history.
  for (const steps of [
    ['err', args[1]!, 'trap', 'unreachable'],
    ['spin', 'forever'],
    ['eat', 'forever'],
    [args[1]!],
  ])
    await platform.invoke('probe', { args: steps, env, stdin, timeoutMs: 500 })
  answers.push(
    JSON.stringify(await refusal(platform.invoke('not-there', { args, env, stdin }))),
    JSON.stringify(await refusal(platform.invoke('probe', { env, stdin, stdinBase64: '%' }))),
  )
})

test('OP-6 failures of the store tell no secret', async () => {
  const postmaster = platform.postmaster()
  assert.ok(postmaster)
  process.kill(postmaster.pid, 'SIGKILL')
  const env = { SECRET: secrets.get('env value') ?? '' }
  const signIn = platform.apiAs(secrets.get('sign-in') ?? '', 'session')
  const key = platform.apiAs(secrets.get('API key') ?? '')
  const said = await Promise.allSettled([
    platform.invoke('probe', { args: ['out', 'x'], env }),
    signIn.access.whoami({}),
    key.access.whoami({}),
    post('/api/auth/sign-in/email', {
      email: 'acme@example.com',
      password: secrets.get('password') ?? '',
    }),
  ])
  for (const one of said) answers.push(one.status === 'rejected' ? String(one.reason) : '')
  await platform.untilReady()
  await platform.untilNode('node-c1', (node) => node.schedulable)
})

test('000-18 no secret in any answer of the API', async () => {
  const { compute } = api
  const { id } = await platform.node('node-c1')
  const probe = { orgId, name: 'probe' }
  await until('the history is written', async () =>
    (await compute.functions.invocations(probe)).invocations.length >= 5 ? true : undefined,
  )
  const all = await Promise.all([
    compute.nodes.list({ orgId }),
    compute.nodes.get({ orgId, id }),
    compute.functions.list({ orgId }),
    compute.functions.get(probe),
    compute.functions.invocations(probe),
    compute.placement.explain(probe),
    compute.events.list({ orgId, limit: 500 }),
    api.access.keys.list({ orgId }),
    api.access.whoami({}),
  ])
  answers.push(...all.map((one) => JSON.stringify(one)))
  for (const path of ['/metrics', '/health', '/ready', '/docs', '/setup', '/sign-in'])
    answers.push(await (await fetch(`${platform.url}${path}`)).text())
  assert.deepEqual(
    answers.flatMap((answer) => found(answer.slice(0, 300), answer)),
    [],
  )
  assert.ok(answers.length > 15)
  assert.ok(answers.some((answer) => stands(label, answer)))
})

test('000-18 no secret in any log', () => {
  assert.ok(platform.engineLog.length > 10_000, 'the engine logs')
  const faults = found('the log of the engine', platform.engineLog)
  for (const agent of platform.agents) faults.push(...found('the log of an agent', agent.log))
  assert.deepEqual(faults, [])
})

test('000-18 no secret in any row of any table', async () => {
  const tables = await sql<{ name: string }>`
    select table_name as name from information_schema.tables where table_schema = 'public'
  `.execute(platform.store)
  assert.ok(tables.rows.length > 15)
  const faults: string[] = []
  let seen = false
  for (const { name } of tables.rows) {
    const dump = await sql<{ text: string }>`
      select one::text as text from ${sql.table(name)} as one
    `.execute(platform.store)
    for (const { text } of dump.rows) {
      faults.push(...found(name, text))
      seen ||= stands(label, text)
    }
  }
  assert.ok(seen)
  assert.deepEqual(faults, [])
})

test("000-18 no secret in the engine's folder or an agent's: not in the write-ahead log, not in a cache", async () => {
  // What was written lately stands in Postgres's files, not only in its memory.
  await sql`checkpoint`.execute(platform.store)
  const faults: string[] = []
  let seen = false
  for (const folder of [platform.home, ...platform.agents.map((one) => one.dataDir)])
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      // Copies of Node and Postgres.
      if (name.startsWith('runtime/')) continue
      const path = join(folder, name)
      if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) continue
      const text = readFileSync(path, 'latin1')
      faults.push(...found(path, text))
      seen ||= stands(label, text)
    }
  assert.ok(seen)
  assert.deepEqual(faults, [])
})

test('000-18 no secret in the argv of any process', () => {
  const faults = allProcesses().flatMap(({ pid, command }) => found(`argv of ${pid}`, command))
  assert.deepEqual(faults, [])
  const [agent] = platform.agents
  assert.ok(allProcesses().some(({ command }) => stands(agent?.dataDir ?? '?', command)))
  assert.equal(secrets.size, 13)
})

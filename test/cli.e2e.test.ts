// Every command of `ccp` against a real platform: real engine, real node, real Postgres.
import assert from 'node:assert/strict'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { until } from '#lib/until.ts'
import { ccpPath, startDevBed, type DevBed } from './cli-dev-bed.ts'
import { checkout, cleanEnv, processesOf, start, type Ended } from './cli-dev-run.ts'

const WORD_COUNT = join(checkout, 'examples/word-count/word-count.wasm')
const PROBE = join(checkout, 'examples/probe/probe.core.wasm')

let bed: DevBed
before(async () => {
  bed = await startDevBed()
})
after(() => bed.close())

test('D50 commands find the running platform by themselves, and its key is nowhere in arguments', async () => {
  const { nodes } = await bed.json<{ nodes: { node_id: string; schedulable: boolean }[] }>([
    'nodes',
    'list',
  ])
  assert.deepEqual(
    nodes.map((node) => [node.node_id, node.schedulable]),
    [['local', true]],
  )
  const key = readFileSync(join(bed.home, 'secrets/dev-key'), 'utf8').trim()
  for (const pid of processesOf(bed.home))
    assert.doesNotMatch(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), new RegExp(key))
  const who = await bed.json<{ kind: string; orgs: unknown[] }>(['auth', 'whoami'])
  assert.equal(who.kind, 'api-key')
  assert.equal(who.orgs.length, 1)
})

test('000-58 deploy and invoke through the whole path; bytes and exit codes are the guest’s', async () => {
  const input = readFileSync(join(checkout, 'LICENSE'), 'utf8')
  assert.equal((await bed.ccp(['functions', 'deploy', WORD_COUNT])).code, 0)
  const counted = await bed.ccp(['functions', 'invoke', 'word-count', '--stdin', '-', '--', '-c'], {
    stdin: input,
  })
  assert.equal(counted.code, 0, counted.err)
  assert.equal(Number(counted.out), Buffer.byteLength(input))
  const deployed = await bed.ccp([
    'functions',
    'deploy',
    PROBE,
    '--name',
    'probe',
    '--timeout-ms',
    '1000',
  ])
  assert.equal(deployed.code, 0, deployed.err)
  const probe = (...steps: string[]): Promise<Ended> =>
    bed.ccp(['functions', 'invoke', 'probe', '--', ...steps])
  const exited = await probe('out', 'kept', 'err', 'said', 'exit', '42')
  assert.deepEqual([exited.code, exited.out, exited.err], [42, 'kept\n', 'said\n'])
  const trapped = await probe('out', 'before', 'trap', 'divide')
  assert.equal(trapped.code, 1)
  assert.equal(trapped.out, 'before\n')
  assert.match(trapped.err, /^trap: /m)
  const slow = await probe('spin', 'forever')
  assert.equal(slow.code, 124)
  assert.match(slow.err, /^timeout: /m)
  const big = 'x'.repeat(8 * 1024 * 1024)
  const most = await bed.ccp(['functions', 'invoke', 'word-count', '--stdin', '-', '--', '-c'], {
    stdin: big,
  })
  assert.equal(Number(most.out), big.length, most.err)
  const more = await bed.ccp(['functions', 'invoke', 'word-count', '--stdin', '-'], {
    stdin: `${big}x`,
  })
  assert.match(more.err, /^TOO_LARGE: stdin has .*at most 8.0 MB/)
  const flood = await probe('stdout', '2000000')
  assert.equal(flood.out.length, 1024 * 1024)
  assert.match(flood.err, /^TRUNCATED: stdout was cut at 1.0 MB/m)
  const env = await bed.ccp(['functions', 'invoke', 'probe', '-e', 'A=1', '--json', '--', 'env'])
  assert.equal((JSON.parse(env.out) as { stdout: string }).stdout, 'A=1\n')
})

test('FN-7 list, get, versions, rollback, invocations and delete', async () => {
  await bed.ccp(['functions', 'deploy', WORD_COUNT, '--name', 'second', '--mem-mb', '32'])
  await bed.ccp(['functions', 'deploy', WORD_COUNT, '--name', 'second', '--mem-mb', '64'])
  type Got = { function: { version: number; mem_mb: number }; versions: unknown[] }
  const got = await bed.json<Got>(['functions', 'get', 'second'])
  assert.deepEqual([got.function.version, got.function.mem_mb, got.versions.length], [2, 64, 2])
  const back = await bed.ccp(['functions', 'rollback', 'second', '--version', '1'])
  assert.equal(back.code, 0, back.err)
  assert.equal((await bed.json<Got>(['functions', 'get', 'second'])).function.mem_mb, 32)
  const table = await bed.ccp(['functions', 'list'])
  assert.match(table.out, /^second +\S+ +1 core +32 MB +36 KB +- +SECURE ONLY/m)
  assert.equal((await bed.ccp(['functions', 'invoke', 'second', '--stdin', WORD_COUNT])).code, 0)
  await until(
    'the invocation is in the history',
    async () => /^.*ok +/m.test((await bed.ccp(['functions', 'invocations', 'second'])).out),
    10_000,
  )
  assert.equal((await bed.ccp(['functions', 'delete', 'second'])).code, 0)
  const gone = await bed.ccp(['functions', 'get', 'second'])
  assert.equal(gone.code, 1)
  assert.match(gone.err, /^\w+: .*second/)
})

test('ND-1 enroll, tier, draining, identity, explain, events, revoke', async () => {
  const args = ['nodes', 'enroll', 'node-a1', '--trust-tier', 'community', '--contributor', 'Ada']
  const enrolled = await bed.json<{ node: { id: string }; token: string }>(args)
  assert.match(enrolled.token, /^clt_n_/)
  const again = await bed.ccp(['nodes', 'enroll', 'node-a1', '--trust-tier', 'secure'])
  assert.equal(again.code, 1)
  assert.match(again.err, /^\w+: .*node-a1/)
  const contributor = await bed.ccp([
    'nodes',
    'enroll',
    'b',
    '--trust-tier',
    'secure',
    '--contributor',
    'x',
  ])
  assert.match(contributor.err, /contributor/)
  const tier = await bed.ccp(['nodes', 'set-tier', 'node-a1', 'secure'])
  assert.match(tier.out, /COMMUNITY → SECURE at its next REGISTER|SECURE/)
  assert.match((await bed.ccp(['nodes', 'set-draining', 'node-a1', 'on'])).out, /is draining/)
  assert.match(
    (await bed.ccp(['nodes', 'set-draining', 'node-a1', 'off'])).out,
    /receives new work/,
  )
  const shown = await bed.ccp(['nodes', 'get', enrolled.node.id])
  assert.match(shown.out, /Takes no work +its provision state is adopting/)
  assert.doesNotMatch(shown.out + shown.err, /clt_n_/)
  const renewed = await bed.ccp(['nodes', 'revoke-identity', 'node-a1', '--yes'])
  assert.match(
    renewed.out,
    new RegExp(`CLUTCH_TOKEN=clt_n_\\S+ [^]*--server 127.0.0.1:${bed.sessions} --node node-a1`),
  )
  const why = await bed.ccp(['placement', 'explain', '--cpu-millis', '16000'])
  assert.match(why.out, /node-a1[^]*local|local[^]*node-a1/)
  assert.match((await bed.ccp(['events', '--limit', '100'])).out, /node\.enrolled/)
  assert.equal((await bed.ccp(['nodes', 'revoke', 'node-a1'])).code, 0)
  assert.doesNotMatch((await bed.ccp(['nodes', 'list'])).out, /node-a1/)
})

test('000-54 the engine refuses what a client let through; D45 a foreign org is FORBIDDEN', async () => {
  const key = readFileSync(join(bed.home, 'secrets/dev-key'), 'utf8').trim()
  const response = await fetch(`http://127.0.0.1:${bed.http}/v1/functions`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ orgId: 'platform', name: 'x', component: 'AGFzbQ==', cpuMillis: 99 }),
  })
  assert.equal(response.status, 400)
  assert.match(await response.text(), /cpuMillis must be a whole number from 100 to 16000/)
  const foreign = await bed.ccp(['nodes', 'list', '--org-id', 'org_unknown'])
  assert.equal(foreign.code, 1)
  const none = await bed.ccp(['nodes', 'list'], {
    env: { CLUTCH_HOME: bed.user, CCP_API_URL: `http://127.0.0.1:${bed.http}` },
  })
  assert.equal(none.code, 77)
  assert.match(none.err, /^\w+: [^]*ccp auth login/)
})

test('CP-9 AC-1 the owner joins by the link, signs in by the device flow, and makes a key', async () => {
  const url = `http://127.0.0.1:${bed.http}`
  const token = /\/setup#(\S+)/.exec(bed.dev.output())?.[1]
  const post = (path: string, body: object, cookie = ''): Promise<Response> =>
    fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: url, cookie },
      body: JSON.stringify(body),
    })
  const person = { name: 'Ada', email: 'ada@example.com', password: 'correct horse battery' }
  const joined = await post('/setup', { token, ...person })
  assert.equal(joined.status, 200, await joined.text())
  const cookie = joined.headers
    .getSetCookie()
    .map((one) => one.split(';')[0])
    .join('; ')

  const env = cleanEnv({ HOME: bed.user, CCP_API_URL: url })
  const login = start(ccpPath, ['auth', 'login'], { env })
  await until('the code is shown', () => /approve the code \S+/.test(login.output()), 10_000)
  const userCode =
    /user_code=([\w-]+)/.exec(login.output())?.[1] ?? /code (\S+)/.exec(login.output())?.[1]
  const seen = await fetch(`${url}/api/auth/device?user_code=${userCode}`, { headers: { cookie } })
  assert.equal(seen.status, 200)
  const approved = await post('/api/auth/device/approve', { userCode }, cookie)
  assert.equal(approved.status, 200, await approved.text())
  const ended = await login.ended
  assert.equal(ended.code, 0, ended.err)
  assert.match(ended.out, /Signed in at .* as Ada/)
  assert.equal(statSync(join(bed.user, '.ccp/session.json')).mode & 0o777, 0o600)

  const asAda = (argv: string[]): Promise<Ended> =>
    start(ccpPath, argv, { env: cleanEnv({ HOME: bed.user }) }).ended
  assert.match((await asAda(['auth', 'whoami'])).out, /^Ada\n[^]*platform operator/)
  const made = await asAda(['auth', 'keys', 'create', 'ci', '--role', 'guest'])
  assert.equal(made.code, 0, made.err)
  const asKey = (argv: string[]): Promise<Ended> =>
    start(ccpPath, argv, {
      env: cleanEnv({ HOME: bed.home, CCP_API_URL: url, CCP_API_KEY: made.out.trim() }),
    }).ended
  assert.equal((await asKey(['nodes', 'list'])).code, 0)
  const enroll = await asKey(['nodes', 'enroll', 'x', '--trust-tier', 'secure'])
  assert.equal(enroll.code, 1)
  const { keys } = JSON.parse((await asAda(['auth', 'keys', 'list', '--json'])).out) as {
    keys: { id: string; name: string }[]
  }
  const ci = keys.find((one) => one.name === 'ci')
  assert.equal((await asAda(['auth', 'keys', 'revoke', ci?.id ?? '', '--yes'])).code, 0)
  assert.equal((await asKey(['nodes', 'list'])).code, 77)
  const invited = await asAda(['auth', 'invite', 'bob@example.com'])
  assert.match(invited.out, /^http\S+\n$/)
  assert.equal((await asAda(['auth', 'logout'])).code, 0)
})

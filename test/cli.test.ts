// `ccp` in this process against an engine that speaks the real contract over real HTTP.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { ORPCError } from '@orpc/client'
import { root as commandTree } from '#cli/app.ts'
import { refusalOf } from '#cli/call.ts'
import { Interrupted } from '#cli/failure.ts'
import { exitCodeOf, parseEnv } from '#cli/commands/functions/invoke.ts'
import { NotConnected } from '#cli/http-fetch.ts'
import { startOf } from '#cli/local-platform.ts'
import { columns, ago } from '#cli/output.ts'
import { runCcp } from '#cli/run.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { systemClock } from '#lib/clock.ts'
import { seededRandom } from '#lib/random.ts'
import { invoked, startStub, type Stub } from './cli-stub.ts'

const root = join(import.meta.dirname, '..')
const WORD_COUNT = join(root, 'examples/word-count/word-count.wasm')

type Run = { code: number; out: string; err: string; bytes: Buffer }
type Options = {
  env?: Record<string, string>
  stdin?: string
  terminal?: boolean
  signal?: AbortSignal
}
type Bed = {
  home: string
  stub: Stub
  /** How long the command would have slept, each time. */
  slept: number[]
  ccp: (argv: string[], options?: Options) => Promise<Run>
}

async function bed(t: TestContext): Promise<Bed> {
  const home = await mkdtemp(join(tmpdir(), 'ccp-test-'))
  t.after(() => rm(home, { recursive: true }))
  const stub = await startStub(t)
  const slept: number[] = []
  return {
    home,
    stub,
    slept,
    async ccp(argv, { env = {}, stdin = '', terminal = false, signal } = {}) {
      const written = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
      const sink = (name: 'stdout' | 'stderr') => ({
        write: (chunk: string | Uint8Array) => written[name].push(Buffer.from(chunk)),
      })
      const streams = {
        stdout: sink('stdout'),
        stderr: sink('stderr'),
        stdin: Readable.from([Buffer.from(stdin)]),
      }
      for (const stream of Object.values(streams)) Object.assign(stream, { isTTY: terminal })
      const code = await runCcp({
        process: {
          ...(streams as unknown as Pick<typeof process, 'stdout' | 'stderr' | 'stdin'>),
          env: { HOME: home, CCP_API_URL: stub.url, CCP_API_KEY: 'key', CLUTCH_HOME: home, ...env },
        },
        argv,
        root,
        version: '1.2.3',
        uid: 1000,
        clock: { ...systemClock, sleep: async (ms) => void slept.push(ms) },
        random: seededRandom(1),
        signal: signal ?? new AbortController().signal,
      })
      const bytes = Buffer.concat(written.stdout)
      return { code, out: bytes.toString(), err: Buffer.concat(written.stderr).toString(), bytes }
    },
  }
}

test('CP-10 every command has an example and its exit codes in --help', async (t) => {
  const { ccp } = await bed(t)
  const commands: string[][] = []
  const walk = (map: typeof commandTree, path: string[]): void => {
    for (const entry of map.getAllEntries()) {
      const at = [...path, entry.name['convert-camel-to-kebab']]
      if ('getAllEntries' in entry.target) walk(entry.target, at)
      else commands.push(at)
    }
  }
  walk(commandTree, [])
  assert.ok(commands.length > 20)
  for (const command of commands) {
    const { out, code, err } = await ccp([...command, '--help'])
    assert.equal(code, 0, command.join(' '))
    assert.equal(err, '')
    const name = command.filter((word) => word !== 'compute').join(' ')
    assert.match(out, new RegExp(`Examples:\n[^]*ccp ${name}`), command.join(' '))
    assert.match(out, /Exit codes: /)
  }
})

test('CP-10 a command line that cannot be read exits 2 and says what was wrong, without a stack', async (t) => {
  const { ccp, stub } = await bed(t)
  const lines: [string[], RegExp][] = [
    [['nodes', 'lst'], /no command 'lst'; did you mean `list`/],
    [['nod'], /no command 'nod'; did you mean `nodes`/],
    [['nodes', 'enroll'], /node-id/],
    [['nodes', 'list', '--jsn'], /there is no flag --jsn, did you mean --json/],
    [['nodes', 'enroll', 'a', '--tier', 'secure'], /no flag --tier, did you mean --trust-tier\?/],
    [['functions', 'invoke', 'a', '-w'], /no flag -w; what is meant for a function goes after --/],
    [['nodes', 'list', 'extra'], /extra/],
    [['nodes', 'set-draining', 'a', 'maybe'], /expected on or off, not 'maybe'/],
  ]
  for (const [argv, message] of lines) {
    const { code, err, out } = await ccp(argv)
    assert.equal(code, 2, argv.join(' '))
    assert.match(err, /^USAGE: /)
    assert.match(err, message)
    assert.doesNotMatch(err, /\bat .*\.[jt]s:/)
    assert.equal(out, '')
  }
  const { out, code } = await ccp(['nodes', 'lst', '--json'])
  assert.equal(code, 2)
  const { error } = JSON.parse(out) as { error: Record<string, unknown> }
  assert.deepEqual(
    [error['reason'], error['message']],
    ['USAGE', "there is no command 'lst'; did you mean `list`?"],
  )
  assert.deepEqual(stub.calls, [])
})

test('CP-10 both `ccp nodes` and `ccp compute nodes` work, and --json is what the API said', async (t) => {
  const { ccp, stub } = await bed(t)
  for (const prefix of [[], ['compute']]) {
    const { code, out } = await ccp([...prefix, 'nodes', 'list', '--json', '--org-id', 'acme'])
    assert.equal(code, 0)
    assert.deepEqual(JSON.parse(out), { nodes: stub.nodes })
  }
  assert.equal(stub.calls[0]?.authorization, 'key')
})

test('000-42 an empty list says what to do; tables are aligned and unstyled without a terminal', async (t) => {
  const { ccp, stub } = await bed(t)
  const full = await ccp(['nodes', 'list'])
  assert.match(full.out, /^NODE +TIER +STATE/)
  assert.match(full.out, /node-a1 +SECURE +adopting · disconnected +nothing reported yet/)
  // oxlint-disable-next-line no-control-regex
  assert.doesNotMatch(full.out, /\u001b/)
  stub.nodes = []
  const empty = await ccp(['nodes', 'list'])
  assert.match(empty.out, /no nodes enrolled: run `ccp nodes enroll/)
  assert.equal(empty.code, 0)
})

test('000-17 enroll prints the token once with the ready command lines', async (t) => {
  const { ccp, stub } = await bed(t)
  const args = ['nodes', 'enroll', 'node-b2', '--trust-tier', 'secure']
  const { out, code } = await ccp([...args, '--server', 'engine.example:443'])
  assert.equal(code, 0)
  assert.match(
    out,
    /CLUTCH_TOKEN=clt_n_secret \\\n +clutch-noded --server engine\.example:443 --node node-b2 --runtimes wasm/,
  )
  assert.match(
    out,
    /clutch-noded \\\n +--server engine\.example:443 \\\n +--node node-b2 \\\n +--token clt_n_secret \\\n +--runtimes wasm/,
  )
  const call = stub.calls.find((one) => one.path === 'compute.nodes.enroll')
  assert.deepEqual(call?.input, { orgId: 'org_1', nodeId: 'node-b2', trustTier: 'secure' })
  assert.match(call?.key ?? '', /^ccp-[0-9a-f]{32}$/)
})

test('000-09 a wrong value is refused before any request, naming field, value and rule', async (t) => {
  const { ccp, stub } = await bed(t)
  const org = ['--org-id', 'acme']
  const cases: [string[], RegExp][] = [
    [
      ['nodes', 'enroll', 'A_b', '--trust-tier', 'secure'],
      /^INVALID: nodeId must be lowercase.*, not 'A_b'/,
    ],
    [
      ['nodes', 'enroll', 'a', '--trust-tier', 'secure', '--contributor', 'Ada'],
      /^INVALID: contributor is accepted with trustTier 'community' only$/m,
    ],
    [['nodes', 'enroll', 'a'], /^INVALID: trustTier must be 'secure'/],
    [
      ['nodes', 'set-tier', 'a', 'gold'],
      /^INVALID: the tier must be secure or community, not 'gold'\n  → ccp nodes set-tier a community/,
    ],
    [['nodes', 'enroll', 'a', '--trust-tier', 'x'], /^INVALID: trustTier must be 'secure'/],
    [
      ['functions', 'deploy', WORD_COUNT, '--cpu-millis', '99'],
      /^INVALID: cpuMillis must be a whole number from 100 to 16000, not 99/,
    ],
    [['functions', 'deploy', WORD_COUNT, '--cpu-millis', '16001'], /^INVALID: cpuMillis must/],
    [
      ['functions', 'deploy', WORD_COUNT, '--mem-mb', '1.5'],
      /^INVALID: memMb must be a whole number from 16 to 4096, not 1.5/,
    ],
    [
      ['functions', 'deploy', WORD_COUNT, '--mem-mb', ''],
      /^INVALID: memMb must be a whole number from 16 to 4096/,
    ],
    [
      ['functions', 'deploy', WORD_COUNT, '--mem-mb', 'lots'],
      /^INVALID: memMb must be a whole number from 16 to 4096, not 'lots'\n  → The flag is --mem-mb/,
    ],
    [
      ['events', '--limit', 'x', ...org],
      /^INVALID: limit must be a whole number from 1 to 500, not 'x'/,
    ],
    [
      ['events', '--cursor', 'zzz', ...org],
      /^INVALID: cursor must be what the page before gave as next_cursor.*, not 'zzz'/,
    ],
    [['auth', 'invite', 'ada', ...org], /^INVALID: email must be an e-mail address, not 'ada'/],
    [
      ['auth', 'keys', 'create', 'ci', '--role', 'king', ...org],
      /^INVALID: role must be one of guest, member, admin, owner, not 'king'/,
    ],
    [
      ['auth', 'keys', 'create', 'ci', '--expires-in-days', '0', ...org],
      /^INVALID: expiresInDays must be a whole number from 1 to 3650, not 0/,
    ],
    [
      ['functions', 'rollback', 'a', '--version', 'x'],
      /^INVALID: version must be a whole number from 1, not 'x'/,
    ],
    [
      ['placement', 'explain', '--runtime', 'foo', ...org],
      /^INVALID: runtime must be wasm, microvm or container, not 'foo'/,
    ],
  ]
  for (const [argv, message] of cases) {
    const { code, err } = await ccp(argv)
    assert.match(err, message, argv.join(' '))
    assert.equal(code, 1)
  }
  assert.deepEqual(stub.calls, [])
})

test('000-50 what is no WASM is refused before any request, naming the magic', async (t) => {
  const { ccp, stub, home } = await bed(t)
  const notes = join(home, 'notes.txt')
  await writeFile(notes, 'hello, this is text\n')
  const named = await ccp(['functions', 'deploy', notes, '--name', 'notes', '--json'])
  assert.equal(named.code, 1)
  assert.match(named.err, /^BAD_MAGIC: .*68 65 6c 6c.*00 61 73 6d/)
  const { error } = JSON.parse(named.out) as { error: Record<string, unknown> }
  assert.equal(error['code'], 'INVALID')
  assert.equal(error['reason'], 'BAD_MAGIC')
  const unnamed = await ccp(['functions', 'deploy', notes, '--json'])
  assert.match(unnamed.err, /BAD_MAGIC/)
  assert.equal(unnamed.code, 1)
  await writeFile(join(home, 'short.wasm'), Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0]))
  const short = await ccp(['functions', 'deploy', join(home, 'short.wasm')])
  assert.match(short.err, /^TOO_SHORT: .*7 bytes.*8/)
  const absent = await ccp(['functions', 'deploy', join(home, 'absent.wasm')])
  assert.match(absent.err, /^UNREADABLE_FILE: /)
  assert.deepEqual(stub.calls, [])
})

test('000-53 a function is named after its file', async (t) => {
  const { ccp, stub, home } = await bed(t)
  const deployed = await ccp(['functions', 'deploy', WORD_COUNT, '--mem-mb', '32'])
  assert.equal(deployed.code, 0)
  assert.match(deployed.out, /^Deployed word-count version 1: 36 KB, 1 core, 64 MB, SECURE ONLY/)
  const call = stub.calls.find((one) => one.path === 'compute.functions.deploy')
  const input = call?.input as Record<string, unknown>
  assert.equal(input['name'], 'word-count')
  assert.equal(input['memMb'], 32)
  assert.equal(input['component'], (await readFile(WORD_COUNT)).toString('base64'))
  await symlink(WORD_COUNT, join(home, 'Word_Count.wasm'))
  const odd = await ccp(['functions', 'deploy', join(home, 'Word_Count.wasm')])
  assert.match(odd.err, /^INVALID_NAME: 'Word_Count'.*lowercase[^]*--name/)
})

test('FN-1 a file over 8 MiB goes ahead as raw bytes, again when that breaks, and is deployed by its hash', async (t) => {
  const { ccp, stub, home } = await bed(t)
  const file = join(home, 'large.wasm')
  const bytes = Buffer.alloc(9 * 1024 * 1024, 'x')
  bytes.set(Buffer.from('0061736d01000000', 'hex'))
  await writeFile(file, bytes)
  const arrived: Buffer[] = []
  const seen: string[] = []
  // Broken off, busy, taken.
  stub.before = (request, answer) => {
    if (request.url?.startsWith('/v1/components') !== true) return false
    const { method, url, headers } = request
    seen.push(`${method} ${url} ${headers['content-type']} ${String(headers['x-api-key'])}`)
    if (seen.length === 1) return Boolean(request.socket.destroy())
    request.on('data', (piece: Buffer) => void (seen.length === 3 && arrived.push(piece)))
    request.on('end', () => {
      const busy = { code: 'UNAVAILABLE', status: 503, message: 'busy', defined: true }
      if (seen.length === 2) answer(503, busy)
      else answer(200, { sha256: sha256Hex(Buffer.concat(arrived)), sizeBytes: bytes.length })
    })
    return true
  }
  const deployed = await ccp([
    'functions',
    'deploy',
    file,
    '--fuel-max',
    '7000',
    '--org-id',
    'acme',
  ])
  assert.equal(deployed.code, 0, deployed.err)
  const line = 'POST /v1/components?orgId=acme application/octet-stream key'
  assert.deepEqual(seen, [line, line, line])
  assert.ok(Buffer.concat(arrived).equals(bytes))
  const { input } = stub.calls.find((one) => one.path === 'compute.functions.deploy')!
  const { component, componentSha256, fuelMax, name } = input as Record<string, unknown>
  assert.deepEqual(
    [component, componentSha256, fuelMax, name],
    [undefined, sha256Hex(bytes), 7000, 'large'],
  )
})

test('FN-1 a refusal is heard while the file is still being sent; over 64 MiB nothing is sent', async (t) => {
  const { ccp, stub, home } = await bed(t)
  const file = join(home, 'large.wasm')
  const bytes = Buffer.alloc(40 * 1024 * 1024)
  bytes.set(Buffer.from('0061736d01000000', 'hex'))
  await writeFile(file, bytes)
  let asked = 0
  stub.before = (request, answer) => {
    asked++
    const data = { reason: 'ROLE', next: 'Ask an owner' }
    answer(403, { code: 'FORBIDDEN', status: 403, message: 'not here', defined: true, data })
    request.resume()
    return true
  }
  const argv = ['functions', 'deploy', file, '--org-id', 'acme']
  const refused = await ccp(argv)
  assert.equal(refused.code, 1)
  assert.match(refused.err, /^ROLE: not here[^]*Ask an owner/)
  assert.equal(asked, 1)
  await truncate(file, 64 * 1024 * 1024 + 1)
  assert.match((await ccp(argv)).err, /^TOO_LARGE: .*64.0 MB/)
  await writeFile(file, Buffer.alloc(9 * 1024 * 1024))
  assert.match((await ccp(argv)).err, /^BAD_MAGIC: /)
  assert.equal(asked, 1)
})

test('AC-6 quotas: a number, or the default again', async (t) => {
  const { ccp, stub } = await bed(t)
  const set = async (value: string): Promise<unknown> => {
    const argv = ['quotas', 'set', '--org-id', 'acme', '--invocations-at-once', value]
    const { code, err, out } = await ccp(argv)
    return code === 0 ? out.trim() : err
  }
  assert.equal(await set('5000'), 'Invocations at once  5000 (set for this organization)')
  assert.equal(await set('default'), 'Invocations at once  1000 (the default)')
  for (const wrong of ['0', '10001', '1.5', 'many', ''])
    assert.match(String(await set(wrong)), /^INVALID: invocationsAtOnce must be a whole number/)
  assert.deepEqual(
    stub.calls.map(({ input }) => (input as Record<string, unknown>)['invocationsAtOnce']),
    [5000, null],
  )
  assert.match((await ccp(['quotas', 'get', '--org-id', 'acme'])).out, /1000 \(the default\)/)
})

test('D28 invoke passes bytes and the exit code of the guest; what is ours exits 1 with a code', async (t) => {
  const { ccp, stub, home } = await bed(t)
  const raw = Buffer.from([0xff, 0x00, 0x0a])
  stub.invoked = {
    ...invoked,
    exitCode: 77,
    ok: false,
    reason: 'exit',
    error: 'exit 77',
    stdout: '\ufffd',
    stdoutBase64: raw.toString('base64'),
    stderr: 'oops\n',
  }
  await writeFile(join(home, 'in'), 'input')
  const argv = ['functions', 'invoke', 'word-count', '--stdin', join(home, 'in'), '-e', 'A=b=c']
  const run = await ccp([...argv, '--', '-w', '--json'])
  assert.equal(run.code, 77)
  assert.deepEqual(run.bytes, raw)
  assert.equal(run.err, 'oops\n')
  const call = stub.calls.find((one) => one.path === 'compute.functions.invoke')
  assert.deepEqual(call?.input, {
    orgId: 'org_1',
    name: 'word-count',
    args: ['-w', '--json'],
    env: { A: 'b=c' },
    stdinBase64: Buffer.from('input').toString('base64'),
  })
  stub.invoked = { ...invoked, exitCode: null, ok: false, reason: 'trap', error: 'unreachable' }
  const trapped = await ccp(['functions', 'invoke', 'word-count', '--stdin', '-'], {
    stdin: 'typed',
  })
  assert.equal(trapped.code, 1)
  assert.match(trapped.err, /^trap: unreachable/)
  const last = stub.calls.findLast((one) => one.path === 'compute.functions.invoke')
  assert.equal(
    (last!.input as Record<string, unknown>)['stdinBase64'],
    Buffer.from('typed').toString('base64'),
  )
  assert.equal(exitCodeOf({ ok: false, exitCode: null, reason: 'timeout' }), 124)
  stub.refuse = () => new ORPCError('UNAUTHENTICATED', { status: 401, message: 'no' })
  assert.equal((await ccp([...argv, '--org-id', 'acme'])).code, 1)
  assert.throws(() => parseEnv(['nope']), /--env 'nope'/)
})

test('D52 a refusal reads REASON: message and the next step; not signed in exits 77', async (t) => {
  const { ccp, stub } = await bed(t)
  stub.refuse = () =>
    new ORPCError('CONFLICT', {
      status: 409,
      message: 'node-a1 is taken',
      data: { reason: 'NODE_ID_TAKEN', next: 'Choose another' },
    })
  const argv = ['nodes', 'list', '--org-id', 'acme']
  const refused = await ccp(argv)
  assert.equal(refused.err.trimEnd(), 'NODE_ID_TAKEN: node-a1 is taken\n  → Choose another')
  assert.equal(refused.code, 1)
  stub.refuse = () => new ORPCError('UNAUTHENTICATED', { status: 401, message: 'no such key' })
  const out = await ccp(argv)
  assert.match(out.err, /^UNAUTHENTICATED: no such key\n  → The credential came from CCP_API_KEY/)
  assert.equal(out.code, 77)
})

test('AC-2 the org is the flag, CCP_ORG_ID, or the only one; of several it asks for one by name', async (t) => {
  const { ccp, stub } = await bed(t)
  const orgs = (): unknown[] =>
    stub.calls
      .filter((one) => one.path === 'compute.functions.list')
      .map((one) => (one.input as { orgId: string }).orgId)
  await ccp(['functions', 'list'])
  await ccp(['functions', 'list'], { env: { CCP_ORG_ID: 'org_env' } })
  await ccp(['functions', 'list', '--org-id', 'org_flag'], { env: { CCP_ORG_ID: 'org_env' } })
  assert.deepEqual(orgs(), ['org_1', 'org_env', 'org_flag'])
  stub.orgs.push({ id: 'org_2', slug: 'beta', name: 'Beta', role: 'owner' })
  const several = await ccp(['functions', 'list'])
  assert.match(several.err, /^ORG_REQUIRED: .*2 organizations: acme, beta\n.*--org-id acme/)
  assert.equal(several.code, 1)
  stub.orgs = []
  assert.match((await ccp(['functions', 'list'])).err, /^NO_ORG: /)
})

test('D51 a create whose connection broke is repeated with the same key; an invocation is not', async (t) => {
  const { ccp, stub } = await bed(t)
  const keys: unknown[] = []
  let broken = 0
  stub.before = (request) => {
    keys.push(request.headers['idempotency-key'])
    if (broken >= 2) return false
    broken++
    request.socket.destroy()
    return true
  }
  const argv = ['nodes', 'enroll', 'a', '--trust-tier', 'secure', '--org-id', 'acme', '--json']
  assert.equal((await ccp(argv)).code, 0)
  assert.equal(keys.length, 3)
  assert.equal(new Set(keys).size, 1)
  assert.equal(stub.calls.length, 1)
  broken = 0
  const once = await ccp(['functions', 'invoke', 'word-count', '--org-id', 'acme'])
  assert.match(once.err, /^CONNECTION_LOST: /)
  assert.equal(broken, 1)
})

test('CP-10 no engine, and something else than an engine, are told apart', async (t) => {
  const { ccp, stub, slept } = await bed(t)
  stub.before = (_request, answer) => (answer(200, { hello: 'world' }), true)
  const other = await ccp(['nodes', 'list', '--org-id', 'acme'])
  assert.match(other.err, /^NOT_AN_ENGINE: /)
  await stub.close()
  const none = await ccp(['nodes', 'list', '--org-id', 'acme'])
  assert.match(none.err, /^NOT_CONNECTED: no engine answers at http:.*ECONNREFUSED[^]*ccp dev/)
  assert.equal(none.code, 1)
  // An engine that starts again is waited for, whatever chance says.
  assert.equal(slept.length, 3)
  for (const [i, pause] of [200, 400, 800].entries())
    assert.ok((slept[i] ?? 0) >= pause && (slept[i] ?? 0) <= 2 * pause, `${slept[i]} ms`)
  const target = { url: stub.url, credential: { kind: 'none' }, orgId: undefined } as const
  const back = refusalOf(new NotConnected('ECONNREFUSED', undefined), {
    ...target,
    sessions: 'x:7443',
  })
  assert.match(back.details.next ?? '', /starts again: repeat it/)
  const odd = await ccp(['nodes', 'list'], { env: { CCP_API_URL: 'ftp://x' } })
  assert.match(odd.err, /^API_URL: 'ftp:\/\/x'/)
})

test('CP-9 login by device flow: pending, slow down, granted; the session file is 0600; logout ends it', async (t) => {
  const { ccp, stub, home, slept } = await bed(t)
  const answers = [
    { error: 'authorization_pending' },
    { error: 'slow_down' },
    { access_token: 'session-token' },
  ]
  const ended: unknown[] = []
  stub.before = (request, answer) => {
    if (request.url === '/api/auth/device/code')
      answer(200, {
        device_code: 'dev',
        user_code: 'ABCD-EFGH',
        verification_uri: `${stub.url}/device`,
        verification_uri_complete: `${stub.url}/device?user_code=ABCD-EFGH`,
        expires_in: 600,
        interval: 5,
      })
    else if (request.url === '/api/auth/device/token') {
      const next = answers.shift()
      answer(next && 'error' in next ? 400 : 200, next)
    } else if (request.url === '/api/auth/sign-out') {
      ended.push(request.headers.authorization)
      answer(200, {})
    } else return false
    return true
  }
  const env = { CCP_API_KEY: '' }
  const login = await ccp(['auth', 'login'], { env })
  assert.equal(login.code, 0, login.err)
  assert.deepEqual(slept, [5_000, 5_000, 10_000])
  assert.match(login.err, /device\?user_code=ABCD-EFGH[^]*approve the code ABCD-EFGH/)
  assert.match(login.out, /as Ada/)
  const file = join(home, '.ccp/session.json')
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  await ccp(['nodes', 'list'], { env: { ...env, CCP_API_URL: '' } })
  assert.equal(stub.calls.at(-1)?.authorization, 'Bearer session-token')
  await ccp(['nodes', 'list'], { env: { ...env, CCP_SESSION_TOKEN: 'from-outside' } })
  assert.equal(stub.calls.at(-1)?.authorization, 'Bearer from-outside')
  const listed = await ccp(['auth', 'contexts', '--json'])
  assert.equal((JSON.parse(listed.out) as { contexts: unknown[] }).contexts.length, 1)
  assert.doesNotMatch(listed.out, /session-token/)
  await ccp(['auth', 'use', 'acme'], { env })
  assert.match(await readFile(file, 'utf8'), /"orgId": "org_1"/)
  const logout = await ccp(['auth', 'logout'], { env })
  assert.equal(logout.code, 0)
  assert.deepEqual(ended, ['Bearer session-token'])
  assert.doesNotMatch(await readFile(file, 'utf8'), /session-token/)
})

test('CP-9 a sign-in that expires or is denied says so', async (t) => {
  const { ccp, stub } = await bed(t)
  for (const [error, reason] of [
    ['expired_token', 'SIGN_IN_EXPIRED'],
    ['access_denied', 'SIGN_IN_DENIED'],
    ['invalid_grant', 'SIGN_IN_FAILED'],
  ]) {
    stub.before = (request, answer) => {
      if (request.url?.endsWith('/code'))
        answer(200, {
          device_code: 'd',
          user_code: 'U',
          verification_uri: 'http://x',
          expires_in: 60,
          interval: 0.01,
        })
      else answer(400, { error })
      return true
    }
    const run = await ccp(['auth', 'login'], { env: { CCP_API_KEY: '' } })
    assert.match(run.err, new RegExp(`^${reason}: `, 'm'))
  }
})

test('CP-9 a session file that cannot be read is an error, not an empty one', async (t) => {
  const { ccp, home } = await bed(t)
  await mkdir(join(home, '.ccp'))
  await writeFile(join(home, '.ccp/session.json'), '{"version":1')
  const { code, err } = await ccp(['nodes', 'list'])
  assert.equal(code, 1)
  assert.match(err, /^SESSION_FILE: .*session\.json[^]*ccp auth login/)
})

test('D9 headless asks nothing; D50 the key of a running platform on this machine is used', async (t) => {
  const { ccp, stub, home } = await bed(t)
  assert.equal((await ccp(['nodes', 'revoke', 'node-a1'])).code, 0)
  await mkdir(join(home, 'secrets'))
  await writeFile(join(home, 'secrets/dev-key'), 'dev-key-value\n')
  const dev = {
    url: stub.url,
    sessions: '127.0.0.1:7443',
    pid: process.pid,
    started: await startOf(process.pid),
  }
  await writeFile(join(home, 'dev.json'), JSON.stringify(dev))
  const env = { CCP_API_URL: '', CCP_API_KEY: '' }
  await writeFile(join(home, 'dev.json'), JSON.stringify({ ...dev, started: '1' }))
  const stale = await ccp(['nodes', 'list'], { env })
  assert.match(stale.err, /^NOT_CONNECTED: /, 'a pid that somebody else has now is no platform')
  await writeFile(join(home, 'dev.json'), JSON.stringify(dev))
  const list = await ccp(['nodes', 'list'], { env })
  assert.equal(list.code, 0, list.err)
  assert.equal(stub.calls.at(-1)?.authorization, 'dev-key-value')
  const enrolled = await ccp(['nodes', 'enroll', 'b', '--trust-tier', 'secure'], { env })
  assert.match(enrolled.out, /--server 127\.0\.0\.1:7443/)
})

test('CP-10 Ctrl-C ends a waiting command with 130 and no explanation', async (t) => {
  const { ccp, stub } = await bed(t)
  const stop = new AbortController()
  stub.before = () => {
    stop.abort(new Interrupted('interrupted'))
    return true
  }
  const run = await ccp(['functions', 'invoke', 'f', '--org-id', 'o'], { signal: stop.signal })
  assert.equal(run.code, 130)
  assert.doesNotMatch(run.err, /INTERNAL/)
})

test('CP-9 Ctrl-C ends a waiting sign-in with 130 and blames no engine', async (t) => {
  const { ccp, stub } = await bed(t)
  const stop = new AbortController()
  stub.before = () => {
    stop.abort(new Interrupted('interrupted'))
    return true
  }
  const { code, err } = await ccp(['auth', 'login'], { signal: stop.signal })
  assert.equal(code, 130)
  assert.match(err, /interrupted$/m)
  assert.doesNotMatch(err, /NOT_AN_ENGINE/)
})

test('CP-10 completion proposes commands and flags for what was typed', async (t) => {
  const { ccp } = await bed(t)
  const next = async (...words: string[]): Promise<string[]> =>
    (await ccp(['complete', '--', ...words])).out.trim().split('\n')
  assert.deepEqual(await next('nod'), ['nodes'])
  assert.deepEqual(await next('nodes', 'set-'), ['set-tier', 'set-draining'])
  assert.ok((await next('functions', 'deploy', '--')).includes('--allow-community'))
  assert.deepEqual(await next('completion', 'b'), ['bash'])
  assert.deepEqual(await next('nodes', 'set-draining', 'a', 'o'), ['on', 'off'])
  assert.match((await ccp(['completion', 'bash'])).out, /complete -o default -F _ccp ccp/)
  assert.equal((await ccp(['completion', 'tcsh'])).code, 2)
})

test('columns start at the same place whatever their styles; times read as people say them', () => {
  assert.deepEqual(
    columns([
      ['A', 'B'],
      ['\u001b[1mlong\u001b[0m', 'x'],
    ]),
    ['A     B', '\u001b[1mlong\u001b[0m  x'],
  )
  const now = Date.UTC(2026, 0, 1)
  assert.equal(ago(null, now), 'never')
  assert.equal(ago(new Date(now - 90_000).toISOString(), now), '1 min 30 s ago')
  assert.equal(ago(new Date(now - 5_400).toISOString(), now), '5 s ago')
  assert.equal(ago(new Date(now + 86_400_000).toISOString(), now), 'in 1 d')
  assert.equal(ago(new Date(now + 7 * 86_400_000 - 40).toISOString(), now), 'in 7 d')
})

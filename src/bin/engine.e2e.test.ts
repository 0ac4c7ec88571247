// The program itself: how it starts, what it refuses, how it ends.
import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { urlOf } from '#store/connect.ts'
import { testTarget } from '#store/test-database.ts'

const PROGRAM = join(import.meta.dirname, 'engine.ts')
const READY_MS = 60_000

type Ready = { ready: true; url: string; sessions: string; id: string }
type Run = { child: ChildProcess; out: () => string; exit: Promise<number | null> }

function run(t: TestContext, argv: string[], env: Record<string, string> = {}): Run {
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', PROGRAM, ...argv],
    {
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk))
  const exit = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)))
  t.after(async () => {
    child.kill('SIGKILL')
    await exit
  })
  return { child, out: () => text, exit }
}

async function ready({ out, child }: Run): Promise<Ready> {
  const deadline = Date.now() + READY_MS
  for (;;) {
    const line = out()
      .split('\n')
      .find((one) => one.startsWith('{"ready":true'))
    if (line !== undefined) return JSON.parse(line) as Ready
    assert.ok(Date.now() < deadline && child.exitCode === null, out())
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

async function place(
  t: TestContext,
): Promise<{ home: string; argv: string[]; env: Record<string, string> }> {
  const home = await mkdtemp(join(tmpdir(), 'clutch-engine-'))
  await chmod(home, 0o711)
  t.after(() => rm(home, { recursive: true, force: true }))
  const env = { DATABASE_URL: urlOf(await testTarget(t)) }
  return { home, argv: ['--home', home, '--http-port=0', '--session-port=0', '--dev'], env }
}

async function refused(one: Run, message: RegExp): Promise<void> {
  assert.equal(await one.exit, 78, one.out())
  assert.match(one.out(), message)
  assert.doesNotMatch(one.out(), / at .*engine\.ts/, 'no stack for what a person did')
}

test('rule 9 a wrong setting ends it with 78, the nearest name, and nothing touched', async (t) => {
  const home = join(tmpdir(), 'clutch-engine-never-made')
  await refused(
    run(t, ['--home', home, '--http-prot', '1'], { CLUTCH_LOG_LEVLE: 'warn' }),
    /CLUTCH_LOG_LEVLE is no setting: did you mean CLUTCH_LOG_LEVEL\?.*--http-prot is no flag: did you mean --http-port\?[^]*→ /,
  )
  await assert.rejects(stat(home), { code: 'ENOENT' })
  const help = run(t, ['--help'])
  assert.equal(await help.exit, 0)
  assert.match(help.out(), /--session-port/)
})

test('OP-1 OP-6 it says when it is ready, keeps its id and key over a restart, and ends cleanly', async (t) => {
  const { home, argv, env } = await place(t)
  const first = run(t, argv, env)
  const { url, id, sessions } = await ready(first)
  assert.match(id, /^eng_/)
  assert.match(sessions, /^127\.0\.0\.1:\d+$/)
  assert.equal((await fetch(`${url}/ready`)).status, 200)
  const [, link = ''] = /once: (\S+)/.exec(first.out()) ?? []
  assert.ok(link.startsWith(`${url}/setup#`))
  const path = join(home, 'secrets/dev-key')
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  const key = (await readFile(path, 'utf8')).trim()
  const whoami = async (at: string): Promise<number> =>
    (await fetch(`${at}/v1/whoami`, { headers: { 'x-api-key': key } })).status
  assert.equal(await whoami(url), 200)
  const second = run(t, argv, env)
  await refused(second, /is in use by clutch-engine, pid \d+, running since/)
  first.child.kill('SIGTERM')
  assert.equal(await first.exit, 0, first.out())
  await assert.rejects(fetch(`${url}/health`))

  const again = run(t, argv, env)
  const next = await ready(again)
  assert.equal(next.id, id)
  assert.equal((await readFile(path, 'utf8')).trim(), key)
  assert.equal(await whoami(next.url), 200)
  again.child.kill('SIGKILL')
  await again.exit
  await writeFile(path, 'clt_k_of_another_platform\n')
  const last = run(t, argv, env)
  await ready(last)
  assert.notEqual((await readFile(path, 'utf8')).trim(), 'clt_k_of_another_platform')
  last.child.kill('SIGTERM')
  assert.equal(await last.exit, 0, last.out())
})

test('a port that is taken, and a database that is none, are told with what to do', async (t) => {
  const { argv, env } = await place(t)
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  t.after(async () => void server.close())
  const address = server.address()
  const port = typeof address === 'object' ? String(address?.port) : ''
  const others = argv.filter((one) => !one.startsWith('--http-port'))
  await refused(
    run(t, [...others, '--http-port', port], env),
    new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port}[^]*→ .*--http-port`),
  )
  await refused(
    run(t, argv, { DATABASE_URL: 'mysql://x' }),
    /DATABASE_URL is not the URL of a Postgres/,
  )
  const away = run(t, argv, { DATABASE_URL: 'postgres://x@127.0.0.1:1/x' })
  assert.equal(await away.exit, 1, away.out())
  assert.match(away.out(), /The database cannot be reached/)
})

test('a stop while it still starts ends it cleanly too', async (t) => {
  const { argv, env } = await place(t)
  const one = run(t, argv, env)
  const deadline = Date.now() + READY_MS
  // Its first words come long before it is ready.
  while (one.out() === '') {
    assert.ok(Date.now() < deadline && one.child.exitCode === null, one.out())
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  one.child.kill('SIGTERM')
  assert.equal(await one.exit, 0, one.out())
})

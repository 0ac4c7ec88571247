// script/up as on a fresh machine: a copy of the checkout in a path with a space, an old Node only, root and ordinary user.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkout, cleanEnv, openFolder, processesOf, start, type Ended } from './cli-dev-run.ts'

/** OP-1. */
const WARM_MS = 20_000
const NOBODY = 65_534
const root = process.getuid?.() === 0

/** The machine's own Node and npm, not the checkout's. */
function systemTool(name: string): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const found = folders
    .filter((folder) => !folder.includes('node_modules'))
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path))
  assert.ok(found, `${name} is on this machine`)
  return found
}

/** What a fresh Debian has, and Node with npm. */
function restrictedPath(folder: string): string {
  const tools = join(folder, 'tools')
  mkdirSync(tools)
  for (const name of ['node', 'npm']) symlinkSync(systemTool(name), join(tools, name))
  return [tools, '/usr/bin', '/bin'].join(delimiter)
}

/** The files that a clone would have, and the installed packages by links: installing takes half a minute. */
function copyCheckout(folder: string): string {
  const copy = join(folder, 'a checkout')
  mkdirSync(copy)
  const listed =
    'git ls-files -coz --exclude-standard | xargs -0 ls -d 2>/dev/null | tr "\\n" "\\0"'
  execFileSync('/bin/bash', ['-c', `${listed} | xargs -0 cp --parents -P -t "$1"`, 'bash', copy], {
    cwd: checkout,
  })
  // Another file system: bytes instead of links.
  const link =
    'cp -al node_modules "$1"/ 2>/dev/null || { rm -rf "$1"/node_modules; cp -a node_modules "$1"/; }'
  execFileSync('/bin/bash', ['-c', link, 'bash', copy], { cwd: checkout })
  return copy
}

type Bed = { home: string; up: (...flags: string[]) => Promise<Ended & { ms: number }> }

function bed(t: TestContext, asNobody: boolean): Bed {
  const folder = openFolder(t, 'clutch-up-')
  const closed = join(folder, 'closed')
  mkdirSync(closed)
  const copy = copyCheckout(closed)
  // D20: a clone under a folder that nobody else can enter is the usual case.
  if (!asNobody) chmodSync(closed, 0o700)
  const home = join(folder, 'state')
  const user = join(folder, 'home')
  for (const path of [home, user]) {
    mkdirSync(path, { mode: 0o755 })
    if (asNobody) chownSync(path, NOBODY, NOBODY)
  }
  chmodSync(folder, 0o755)
  const env = { ...cleanEnv({ HOME: user, CLUTCH_HOME: home }), PATH: restrictedPath(folder) }
  const user65534 = ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', '--']
  const as = asNobody ? user65534 : ['env', '--']
  return {
    home,
    async up(...flags) {
      const began = performance.now()
      const [command = '', ...argv] = [...as, join(copy, 'script/up'), ...flags]
      const ended = await start(command, argv, { env, cwd: '/' }).ended
      return { ...ended, ms: performance.now() - began }
    },
  }
}

function assertSucceeded({ code, out, err }: Ended): void {
  assert.equal(code, 0, out + err)
  for (const step of [
    'engine is ready',
    'node local takes work',
    'deployed word-count',
    'invoked it the first time',
  ])
    assert.match(out, new RegExp(`✓ ${step} +[\\d.]+ m?s`))
  assert.match(
    out,
    /21 lines, 168 words, 995 bytes · exit 0|\d+ lines, \d+ words, \d+ bytes · exit 0/,
  )
  assert.match(out, /Console +http:\/\/127\.0\.0\.1:\d+/)
  assert.match(out, /Become owner +http:\/\/127\.0\.0\.1:\d+\/setup#/)
}

test('OP-1 script/up --once from a copy in a path with a space: exit 0, all of it stopped; warm within 20 s', async (t) => {
  const { home, up } = bed(t, false)
  const first = await up('--once')
  assertSucceeded(first)
  assert.match(first.out, /node local takes work.*enrolled$/m)
  assert.deepEqual(processesOf(home), [])
  const warm = await up('--once')
  assertSucceeded(warm)
  assert.match(warm.out, /node local takes work.*enrolled before$/m)
  assert.ok(warm.ms < WARM_MS, `${Math.round(warm.ms)} ms`)
  assert.deepEqual(processesOf(home), [])
  assert.ok(readdirSync(join(home, 'logs')).includes('engine.log'))
})

test('OP-1 script/up --once works as an ordinary user, and picks free ports when the usual are taken', async (t) => {
  const { createServer } = await import('node:net')
  const server = createServer()
  await new Promise<void>((done) => {
    // Taken already by a platform on this machine: as good.
    server.once('error', () => done())
    server.listen(7070, '127.0.0.1', () => done())
  })
  t.after(() => server.close())
  const { home, up } = bed(t, root)
  const ended = await up('--once')
  assertSucceeded(ended)
  assert.doesNotMatch(ended.out, /127\.0\.0\.1:7070/)
  assert.deepEqual(processesOf(home), [])
})

test('OP-1 script/up exits 1 and says why when the platform cannot start', async (t) => {
  const { home, up } = bed(t, false)
  chmodSync(join(home, '..'), 0o755)
  const ended = await up('--once', '--home', '/proc/no-such-place')
  assert.equal(ended.code, 1)
  assert.match(ended.err, /^STATE_FOLDER: .*\/proc\/no-such-place[^]*--home/m)
  assert.doesNotMatch(ended.err, /\bat .*\.ts:\d+/)
})

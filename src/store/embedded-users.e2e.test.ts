// Who may run it and from where: an ordinary user, and root from a checkout that nobody else can enter.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { systemRandom } from '#lib/random.ts'
import { startEmbedded } from '#store/embedded.ts'
import { firstClosedParent, openStateFolder } from '#store/state-folder.ts'

const CHECKOUT = join(import.meta.dirname, '../..')
const isRoot = process.getuid?.() === 0
// Not ours: the test runner's own variables would make the inner run answer in its private format.
const env = { PATH: process.env['PATH'] ?? '', TMPDIR: tmpdir() }
const AS_NOBODY = ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups']

function scratch(t: TestContext, mode: number): string {
  const at = mkdtempSync(join(tmpdir(), 'clutch-users-'))
  t.after(() => rmSync(at, { recursive: true, force: true }))
  chmodSync(at, mode)
  return at
}

/** What the store needs of this checkout, and this Node. Returns the path of the Node. */
function clone(to: string): string {
  mkdirSync(to)
  for (const part of ['src/lib', 'src/store', 'migrations', 'package.json'])
    cpSync(join(CHECKOUT, part), join(to, part), { recursive: true })
  const big =
    /^(node-linux|typescript|@typescript|oxlint|@oxlint|oxfmt|@oxfmt|binaryen|@bytecodealliance|swagger|\.)/
  for (const name of readdirSync(join(CHECKOUT, 'node_modules')))
    if (!big.test(name))
      cpSync(join(CHECKOUT, 'node_modules', name), join(to, 'node_modules', name), {
        recursive: true,
        verbatimSymlinks: true,
      })
  cpSync(process.execPath, join(to, 'node'))
  return join(to, 'node')
}

test('D20 an ordinary user runs the embedded Postgres', async (t) => {
  // An ordinary user who runs this file runs embedded.e2e.test.ts as well: that is the proof.
  if (!isRoot) return
  let at = CHECKOUT
  let node = process.execPath
  if ((await firstClosedParent(CHECKOUT)) !== undefined) {
    at = join(scratch(t, 0o755), 'clone')
    node = clone(at)
  }
  const file = join(at, 'src/store/embedded.e2e.test.ts')
  const flags = ['--test', '--test-timeout=60000', '--test-reporter=tap', file]
  const [command = '', ...rest] = [...AS_NOBODY, node, ...flags]
  const out = execFileSync(command, rest, { cwd: '/', env, encoding: 'utf8' })
  assert.match(out, /# fail 0\n/)
  assert.doesNotMatch(out, /# pass 0\n/)
})

test('D20 root runs it from a clone under a folder that nobody else can enter', (t) => {
  const at = join(scratch(t, isRoot ? 0o700 : 0o755), 'clone')
  const node = clone(at)
  const state = scratch(t, 0o700)
  const script = `
    import { execFileSync } from 'node:child_process'
    import { readlinkSync, statSync } from 'node:fs'
    import { startEmbedded } from '#store/embedded.ts'
    import { migrate } from '#store/migrate.ts'
    import { openStateFolder } from '#store/state-folder.ts'
    import { runtimeNode } from '#store/files/runtime-copy.ts'
    import { systemClock as clock } from '#lib/clock.ts'
    import { systemRandom as random } from '#lib/random.ts'
    const folder = await openStateFolder(process.argv[1])
    const embedded = await startEmbedded({ folder, durable: false }, { clock, random })
    try {
      const migrated = await migrate(embedded.target)
      const node = await runtimeNode(folder.runtime, random)
      const as = process.getuid() === 0 ? ${JSON.stringify(AS_NOBODY)} : ['env']
      const [command, ...flags] = [...as, node, '-p', 'process.version']
      process.stdout.write(JSON.stringify({
        migrated: migrated.length > 0,
        postgres: readlinkSync('/proc/' + embedded.pid + '/exe'),
        owner: statSync('/proc/' + embedded.pid).uid,
        node: execFileSync(command, flags, { encoding: 'utf8' }).trim(),
      }))
    } finally {
      await embedded.stop()
    }`
  const flags = ['--input-type=module-typescript', '-e', script, state]
  const out = execFileSync(node, flags, { cwd: at, env, encoding: 'utf8' })
  const seen = JSON.parse(out) as { [key: string]: unknown }
  assert.equal(seen['migrated'], true)
  assert.equal(seen['node'], process.version)
  assert.equal(seen['owner'] === 0, false, 'Postgres does not run as root')
  const from = isRoot ? join(state, 'runtime/postgres-') : at
  assert.ok(String(seen['postgres']).startsWith(from), String(seen['postgres']))
})

test('D20 root is told which folder on the way the postgres user cannot enter', async (t) => {
  const closed = scratch(t, 0o700)
  const folder = await openStateFolder(join(closed, 'state'))
  const attempt = startEmbedded(
    { folder, durable: false },
    { clock: systemClock, random: systemRandom },
  )
  // An ordinary user's Postgres is the same user, and no folder is closed to it.
  if (!isRoot) return (await attempt).stop()
  await assert.rejects(attempt, (error: unknown) => {
    assert.ok(error instanceof AppError)
    assert.equal(error.details.reason, 'STATE_FOLDER_CLOSED')
    assert.equal(String(error.details.next).startsWith(`chmod o+x ${closed},`), true)
    return true
  })
})

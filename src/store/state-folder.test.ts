import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { AppError } from '#lib/error.ts'
import { systemRandom } from '#lib/random.ts'
import {
  engineIdOf,
  firstClosedParent,
  lockStateFolder,
  openStateFolder,
  statePath,
} from '#store/state-folder.ts'
import { lockFile } from '#store/files/lock.ts'

const clock = fakeClock()
const engine = { clock, program: 'clutch-engine' }

function scratch(t: TestContext): string {
  const at = mkdtempSync(join(tmpdir(), 'clutch-state-'))
  t.after(() => rmSync(at, { recursive: true, force: true }))
  return at
}

test('D20 the state folder is CLUTCH_HOME, else /var/lib/clutch for root, else below the home', () => {
  const place = { clutchHome: undefined, home: '/home/ann', uid: 1000 }
  assert.equal(statePath(place), '/home/ann/.local/state/clutch')
  assert.equal(statePath({ ...place, uid: 0 }), '/var/lib/clutch')
  assert.equal(statePath({ ...place, clutchHome: '' }), '/home/ann/.local/state/clutch')
  assert.equal(statePath({ ...place, clutchHome: '/srv/x/' }), '/srv/x')
})

test('D20 the folders have their modes, whatever the umask and whatever they were before', async (t) => {
  const at = join(scratch(t), 'a/b')
  mkdirSync(join(at, 'secrets'), { recursive: true })
  chmodSync(join(at, 'secrets'), 0o777)
  chmodSync(at, 0o700)
  const folder = await openStateFolder(at)
  const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8)
  assert.equal(mode(folder.root), '711')
  assert.equal(mode(folder.secrets), '700')
  assert.equal(mode(folder.postgres), '700')
  assert.equal(mode(folder.blobs), '700')
  assert.equal(mode(folder.runtime), '755')
})

test('D20 a folder that is not ours keeps its mode; one that everybody writes is refused', async (t) => {
  const at = scratch(t)
  writeFileSync(join(at, 'letter.txt'), '')
  for (const mode of [0o700, 0o755]) {
    chmodSync(at, mode)
    rmSync(join(at, 'secrets'), { recursive: true, force: true })
    await openStateFolder(at)
    assert.equal(statSync(at).mode & 0o777, mode)
  }
  chmodSync(at, 0o1777)
  await assert.rejects(openStateFolder(at), (error: unknown) => {
    assert.ok(error instanceof AppError)
    return error.details.reason === 'STATE_FOLDER_OPEN'
  })
})

test('D20 a state folder that cannot be made is refused with the way out', async (t) => {
  const at = join(scratch(t), 'file')
  writeFileSync(at, '')
  await assert.rejects(openStateFolder(join(at, 'x')), (error: unknown) => {
    assert.ok(error instanceof AppError)
    assert.equal(error.details.reason, 'STATE_FOLDER')
    assert.match(String(error.details.next), /CLUTCH_HOME/)
    return true
  })
})

test('D20 a second engine on the folder is refused by the name of the first', async (t) => {
  const folder = await openStateFolder(scratch(t))
  const lock = lockStateFolder(folder, engine)
  assert.throws(
    () => lockStateFolder(folder, engine),
    (error: unknown) => {
      assert.ok(error instanceof AppError)
      assert.equal(error.code, 'INVALID_STATE')
      assert.equal(error.details.reason, 'STATE_FOLDER_IN_USE')
      assert.equal(error.details['pid'], process.pid)
      assert.match(
        error.message,
        new RegExp(`clutch-engine, pid ${process.pid}, running since 2026-01-01T00:00:00.000Z`),
      )
      return true
    },
  )
  lock.release()
  lockStateFolder(folder, engine).release()
})

test('D20 a lock whose holder was killed is free, also when its pid is in use again', async (t) => {
  const folder = await openStateFolder(scratch(t))
  const child = await holder(t, folder.root)
  assert.throws(() => lockStateFolder(folder, engine), new RegExp(`pid ${child.pid}, `))
  child.kill('SIGKILL')
  await once(child, 'exit')
  // What a note of the dead names is alive: us, and pid 1.
  for (const pid of [process.pid, 1]) {
    writeFileSync(join(folder.root, 'lock.json'), JSON.stringify({ program: 'x', pid, since: 'y' }))
    lockStateFolder(folder, engine).release()
  }
})

test('D20 of many that want the folder at once, one gets it', async (t) => {
  const folder = await openStateFolder(scratch(t))
  const children = await Promise.all(Array.from({ length: 6 }, () => contender(t, folder.root)))
  for (const child of children) child.send('now')
  const answers = await Promise.all(
    children.map(async (child) => (await once(child, 'message'))[0]),
  )
  assert.deepEqual(answers.filter((a) => a === 'got it').length, 1)
})

test('D20 shared locks agree with each other and not with an exclusive one', (t) => {
  const path = join(scratch(t), 'users')
  const one = lockFile(path, { shared: true })
  const two = lockFile(path, { shared: true })
  assert.ok(one && two)
  assert.equal(lockFile(path), undefined)
  one.release()
  assert.equal(lockFile(path), undefined)
  two.release()
  const alone = lockFile(path)
  assert.ok(alone)
  assert.equal(lockFile(path, { shared: true }), undefined)
  alone.release()
})

test('D20 the first closed folder on the way is named', async (t) => {
  const at = scratch(t)
  mkdirSync(join(at, 'a/b'), { recursive: true })
  chmodSync(at, 0o711)
  assert.equal(await firstClosedParent(join(at, 'a/b')), undefined)
  chmodSync(join(at, 'a'), 0o700)
  assert.equal(await firstClosedParent(join(at, 'a/b')), join(at, 'a'))
})

test('design 7 an engine keeps its id on its folder', async (t) => {
  const folder = await openStateFolder(scratch(t))
  const deps = { clock, random: systemRandom }
  const id = await engineIdOf(folder, deps)
  assert.match(id, /^eng_/)
  assert.equal(await engineIdOf(folder, deps), id)
  writeFileSync(join(folder.root, 'engine-id'), '../x\n')
  await assert.rejects(engineIdOf(folder, deps), /does not hold an engine's id/)
})

const preamble = `
  import { lockStateFolder, openStateFolder } from '#store/state-folder.ts'
  import { systemClock as clock } from '#lib/clock.ts'
  const folder = await openStateFolder(process.argv[1])
  const lock = () => lockStateFolder(folder, { clock, program: 'clutch-engine' })
`

/** A process that holds the folder. */
async function holder(t: TestContext, root: string): Promise<ChildProcess> {
  const child = run(t, root, `lock(); process.send('got it'); process.on('message', () => {})`)
  await once(child, 'message')
  return child
}

/** A process that takes it when told. */
async function contender(t: TestContext, root: string): Promise<ChildProcess> {
  const child = run(
    t,
    root,
    `process.on('message', () => { try { lock(); process.send('got it') } catch { process.send('refused') } })
     process.send('here')`,
  )
  await once(child, 'message')
  return child
}

function run(t: TestContext, root: string, script: string): ChildProcess {
  const child = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', preamble + script, root],
    {
      cwd: join(import.meta.dirname, '../..'),
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    },
  )
  t.after(() => child.kill('SIGKILL'))
  return child
}

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { connect, type Store } from '#store/connect.ts'
import { type Embedded, type EmbeddedEvent, startEmbedded } from '#store/embedded.ts'
import { migrate } from '#store/migrate.ts'
import { openStateFolder, type StateFolder } from '#store/state-folder.ts'

const deps = { clock: systemClock, random: systemRandom }
const CHECKOUT = join(import.meta.dirname, '../..')

async function folderFor(t: TestContext): Promise<StateFolder> {
  const at = mkdtempSync(join(tmpdir(), 'clutch-embedded-'))
  t.after(() => rmSync(at, { recursive: true, force: true }))
  return openStateFolder(at)
}

async function start(
  t: TestContext,
  folder: StateFolder,
  onEvent?: (e: EmbeddedEvent) => void,
): Promise<Embedded> {
  const spec = { folder, durable: false, ...(onEvent ? { onEvent } : {}) }
  const embedded = await startEmbedded(spec, deps)
  t.after(() => embedded.stop())
  return embedded
}

function storeOn(t: TestContext, embedded: Embedded): Store {
  const store = connect(embedded.target, { max: 3 })
  t.after(() => store.destroy())
  return store
}

const show = async (store: Store, name: string): Promise<string> =>
  (await sql<{ value: string }>`select current_setting(${name}) as value`.execute(store)).rows[0]!
    .value

const answers = (store: Store): Promise<boolean> =>
  sql`select 1`.execute(store).then(
    () => true,
    () => false,
  )

test('D20 the embedded Postgres keeps what it flushed, has no port, and its folders are closed', async (t) => {
  const folder = await folderFor(t)
  const embedded = await startEmbedded({ folder }, deps)
  const store = connect(embedded.target)
  try {
    assert.equal(await show(store, 'fsync'), 'on')
    assert.equal(await show(store, 'synchronous_commit'), 'on')
    assert.equal(await show(store, 'listen_addresses'), '')
    assert.equal(await show(store, 'timezone'), 'UTC')
    await migrate(embedded.target)
  } finally {
    await store.destroy()
    await embedded.stop()
  }
  const sockets = readdirSync(join(folder.postgres, 'socket'))
  assert.deepEqual(sockets, [], 'a clean stop leaves no socket')
  assert.equal(statSync(folder.root).mode & 0o777, 0o711)
  for (const name of ['.', 'socket', '18'])
    assert.equal(statSync(join(folder.postgres, name)).mode & 0o777, 0o700, name)
  const again = await start(t, folder)
  assert.equal(again.adopted, false)
  assert.deepEqual(await migrate(again.target), [], 'the schema is still there')
})

test('D20 a Postgres that outlived its killed engine is adopted', async (t) => {
  const folder = await folderFor(t)
  const script = `
    import { startEmbedded } from '#store/embedded.ts'
    import { openStateFolder } from '#store/state-folder.ts'
    import { systemClock as clock } from '#lib/clock.ts'
    import { systemRandom as random } from '#lib/random.ts'
    const folder = await openStateFolder(process.argv[1])
    const embedded = await startEmbedded({ folder, durable: false }, { clock, random })
    process.send(embedded.pid)
    process.on('message', () => {})`
  const engine = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', script, folder.root],
    {
      cwd: CHECKOUT,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    },
  )
  const dead = once(engine, 'exit').then(() => assert.fail('the engine ended'))
  const [pid] = (await Promise.race([once(engine, 'message'), dead])) as [number]
  dead.catch(() => undefined)
  engine.kill('SIGKILL')
  await once(engine, 'exit')
  const embedded = await start(t, folder)
  assert.equal(embedded.adopted, true)
  assert.equal(embedded.pid, pid)
  assert.ok(await answers(storeOn(t, embedded)))
})

test('D20 a Postgres that is killed is started again, and what was committed is there', async (t) => {
  const events: EmbeddedEvent[] = []
  const embedded = await start(t, await folderFor(t), (event) => events.push(event))
  const store = storeOn(t, embedded)
  await sql`create table kept (n int)`.execute(store)
  await sql`insert into kept values (1)`.execute(store)
  for (const kind of ['an idle', 'a busy'] as const) {
    const killed = embedded.pid
    const busy =
      kind === 'a busy'
        ? assert.rejects(sql`select pg_sleep(30)`.execute(store), unavailable)
        : Promise.resolve()
    // Until the sleep runs nothing is killed in the middle of it.
    if (kind === 'a busy')
      await until('the sleep', async () => {
        const found =
          await sql`select from pg_stat_activity where query like 'select pg_sleep%'`.execute(store)
        return found.rows.length === 1
      })
    process.kill(killed, 'SIGKILL')
    await busy
    await until('the restart', () => events.at(-1)?.kind === 'restarted' && embedded.pid !== killed)
    await until('an answer', () => answers(store))
  }
  assert.equal((await sql`select n from kept`.execute(store)).rows.length, 1)
  assert.deepEqual(
    events.map((event) => event.kind),
    ['died', 'restarted', 'died', 'restarted'],
  )
})

test('D20 a Postgres that stopped half-way through a transaction loses only that', async (t) => {
  const embedded = await start(t, await folderFor(t))
  const store = storeOn(t, embedded)
  await sql`create table kept (n int)`.execute(store)
  const killed = embedded.pid
  await assert.rejects(
    store.transaction().execute(async (tx) => {
      await sql`insert into kept values (1)`.execute(tx)
      process.kill(killed, 'SIGKILL')
      await until('its end', () => !existsSync(`/proc/${killed}/fd/0`) || embedded.pid !== killed)
      for (;;) await sql`insert into kept values (2)`.execute(tx)
    }),
    unavailable,
  )
  await until('an answer', () => answers(store))
  assert.equal((await sql`select n from kept`.execute(store)).rows.length, 0)
})

test('D20 stopping while Postgres is being restarted stops it', async (t) => {
  const events: EmbeddedEvent[] = []
  const folder = await folderFor(t)
  const embedded = await start(t, folder, (event) => events.push(event))
  process.kill(embedded.pid, 'SIGKILL')
  await until('the notice', () => events.length > 0)
  await embedded.stop()
  assert.equal(existsSync(join(folder.postgres, '18/postmaster.pid')), false)
})

test('D20 a Postgres that cannot start says why, and how to go on', async (t) => {
  const folder = await folderFor(t)
  const embedded = await startEmbedded({ folder, durable: false }, deps)
  await embedded.stop()
  const conf = join(folder.postgres, '18/postgresql.conf')
  const before = readFileSync(conf)
  appendFileSync(conf, '\nno_such_setting = 1\n')
  await refused(
    startEmbedded({ folder }, deps),
    'EMBEDDED_ENDED',
    /no_such_setting|configuration file/,
  )
  cpSync(conf, `${conf}.bad`)
  appendFileSync(conf, '')
  rmSync(conf)
  await refused(startEmbedded({ folder }, deps), 'EMBEDDED_ENDED', /postgresql\.conf/)
  execFileSync('cp', ['-p', `${conf}.bad`, conf])
  execFileSync('truncate', ['-s', String(before.length), conf])
  const again = await start(t, folder)
  assert.equal(again.adopted, false)
  await again.stop()
  renameSync(join(folder.postgres, '18'), join(folder.postgres, '17'))
  await refused(
    startEmbedded({ folder }, deps),
    'DATA_VERSION',
    /Postgres 17; this program brings Postgres 18/,
  )
})

test('D20 a data folder whose making was cut short is made again', async (t) => {
  const folder = await folderFor(t)
  mkdirSync(join(folder.postgres, '18.part/base'), { recursive: true })
  assert.ok(await answers(storeOn(t, await start(t, folder))))
})

test('D20 a pid file that names another program, or nothing, does not stop it', async (t) => {
  const folder = await folderFor(t)
  const embedded = await startEmbedded({ folder, durable: false }, deps)
  await embedded.stop()
  const path = join(folder.postgres, '18/postmaster.pid')
  const { uid, gid } = statSync(join(folder.postgres, '18'))
  // A live process of Postgres's own user: for one of another user Postgres itself sees that it is none.
  const other = spawn('sleep', ['60'], { uid, gid, cwd: '/', stdio: 'ignore' })
  t.after(() => other.kill('SIGKILL'))
  for (const text of [`${other.pid}\n${join(folder.postgres, '18')}\n`, '', 'x']) {
    writeFileSync(path, text)
    const before = new Date(Date.now() - 60_000)
    utimesSync(path, before, before)
    const again = await startEmbedded({ folder, durable: false }, deps)
    assert.equal(again.adopted, false)
    await again.stop()
  }
})

test('design 5 what was acknowledged is there after engine and Postgres are killed at once', async (t) => {
  const folder = await folderFor(t)
  const script = `
    import { sql } from 'kysely'
    import { connect } from '#store/connect.ts'
    import { startEmbedded } from '#store/embedded.ts'
    import { openStateFolder } from '#store/state-folder.ts'
    import { systemClock as clock } from '#lib/clock.ts'
    import { systemRandom as random } from '#lib/random.ts'
    const folder = await openStateFolder(process.argv[1])
    const embedded = await startEmbedded({ folder }, { clock, random })
    const store = connect(embedded.target)
    await sql\`create table if not exists acked (n int primary key)\`.execute(store)
    const { rows } = await sql\`select coalesce(max(n), 0) as n from acked\`.execute(store)
    for (let n = rows[0].n + 1; ; n++) {
      await sql\`insert into acked values (\${n})\`.execute(store)
      process.send({ pid: embedded.pid, n })
    }`
  let acked = 0
  for (let round = 0; round < 3; round++) {
    const engine = spawn(
      process.execPath,
      ['--input-type=module-typescript', '-e', script, folder.root],
      { cwd: CHECKOUT, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] },
    )
    t.after(() => engine.kill('SIGKILL'))
    const goal = acked + 100
    await new Promise<void>((resolve, reject) => {
      engine.once('exit', () => reject(new Error('the engine ended by itself')))
      engine.on('message', (message: { pid: number; n: number }) => {
        acked = message.n
        if (acked !== goal) return
        process.kill(message.pid, 'SIGKILL')
        engine.removeAllListeners('exit')
        engine.kill('SIGKILL')
        resolve()
      })
    })
  }
  const store = storeOn(t, await start(t, folder))
  const { rows } = await sql<{ n: number; last: number }>`
    select count(*)::int as n, max(n) as last from acked`.execute(store)
  assert.ok(rows[0]!.last >= acked, `${rows[0]!.last} of ${acked}`)
  assert.equal(rows[0]!.n, rows[0]!.last, 'no holes')
})

test('D20 a path too long for a socket is refused', async (t) => {
  const at = mkdtempSync(join(tmpdir(), 'clutch-embedded-'))
  t.after(() => rmSync(at, { recursive: true, force: true }))
  chmodSync(at, 0o711)
  const folder = await openStateFolder(join(at, 'x'.repeat(80)))
  await refused(startEmbedded({ folder }, deps), 'STATE_PATH_LONG', /longer than a socket/)
})

const unavailable = (error: unknown): boolean =>
  error instanceof AppError && error.details.reason === 'store_unavailable'

async function refused(attempt: Promise<unknown>, reason: string, message: RegExp): Promise<void> {
  await assert.rejects(attempt, (error: unknown) => {
    assert.ok(error instanceof AppError, String(error))
    assert.equal(error.details.reason, reason, error.message)
    assert.match(error.message, message)
    assert.ok(error.details.next)
    return true
  })
}

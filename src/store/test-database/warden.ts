// Keeps the test server of this user while any test process uses it; started by test-database.ts, ends by itself.
// 1. At most one: it holds the lock `warden` for as long as it lives.
// 2. Users hold `users` together; the warden tries to have it alone. When it could for a while, it keeps it, so that
//    nobody arrives while the server stops.
import { renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { clientConfig, type StoreTarget } from '#store/connect.ts'
import { type Embedded, startEmbedded } from '#store/embedded.ts'
import { openStateFolder } from '#store/state-folder.ts'
import { type FileLock, lockFile } from '#store/files/lock.ts'
import { testFolder } from '#store/test-database/server.ts'

/** Between two test files of one run there may be nobody for a moment. */
const LINGER_MS = 3000
const LOOK_EVERY_MS = 250
/** Someone who only looks whether a warden lives has the lock for a blink. */
const BLINK_MS = 1000

const folder = testFolder()
const mine = lockFile(join(folder, 'warden'), { waitMs: BLINK_MS })
// Another warden was faster.
if (mine === undefined) process.exit(0)
truncateSync(join(folder, 'warden.log'))
const ready = join(folder, 'ready.json')
rmSync(ready, { force: true })

const embedded = await start()
if (!embedded.adopted) await clean()
writeFileSync(
  `${ready}.part`,
  JSON.stringify({ pid: process.pid, ...embedded.target, database: undefined }),
)
renameSync(`${ready}.part`, ready)
const alone = await nobody()
await clean()
rmSync(ready, { force: true })
await embedded.stop()
alone.release()
mine.release()

async function start(): Promise<Embedded> {
  return startEmbedded(
    {
      folder: await openStateFolder(folder),
      durable: false,
      settings: {
        fsync: 'off',
        synchronous_commit: 'off',
        full_page_writes: 'off',
        max_connections: '300',
        max_wal_size: '256MB',
      },
    },
    { clock: systemClock, random: systemRandom },
  )
}

async function nobody(): Promise<FileLock> {
  for (let quietMs = 0; ; quietMs += LOOK_EVERY_MS) {
    const lock = lockFile(join(folder, 'users'))
    if (lock && quietMs >= LINGER_MS) return lock
    if (!lock) quietMs = -LOOK_EVERY_MS
    lock?.release()
    await systemClock.sleep(LOOK_EVERY_MS)
  }
}

/** Databases of tests that were killed, and all templates but the newest few. */
async function clean(): Promise<void> {
  const target: StoreTarget = embedded.target
  const client = new pg.Client(clientConfig(target))
  client.on('error', () => undefined)
  await client.connect()
  try {
    const { rows } = await client.query<{ name: string }>(`
      (select datname as name from pg_database where datname ~ '^(test|draft)_')
      union all
      (select datname from pg_database where datname ~ '^template_' order by oid desc offset 3)
    `)
    for (const { name } of rows)
      await client.query(`drop database ${client.escapeIdentifier(name)} with (force)`)
  } finally {
    await client.end()
  }
}

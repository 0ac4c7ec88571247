// One postmaster: made, found, started, asked whether it is ready, stopped.
// 1. No TCP port: listen_addresses is empty. No password: pg_hba allows `local … peer` only, and pg_ident maps the OS
//    users who may enter. The socket's folder is 0700.
// 2. postmaster.pid is the truth about what runs, not our child: a postmaster outlives a kill -9 of its engine.
// 3. A process is its pid and its start time; a zombie is dead.
// 4. A data folder is complete or absent: initdb works beside it, then it is renamed.
import { execFile, spawn } from 'node:child_process'
import { chown, mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { closeSync, openSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { sqlState } from '#store/connect.ts'
import type { Binaries } from '#store/embedded/binaries.ts'
import type { Owner } from '#store/embedded/owner.ts'

const run = promisify(execFile)

export const SUPERUSER = 'clutch'
/** A unix socket's path is 107 bytes at most; Postgres adds this. */
const SOCKET_PATH_MAX = 107 - '/.s.PGSQL.5432'.length
/** What Postgres says is little; older than this many bytes goes. */
const LOG_BYTES_MAX = 10 * 1024 ** 2
const POLL_MS = 20
/** From its first breath to its line in postmaster.pid a postmaster takes some milliseconds. */
const STARTING_MS = 5000
/** SIGQUIT ends a backend at once unless it hangs in the kernel. */
const ORPHAN_PATIENCE_MS = 3000
/** Nothing of ours in the children: not our tokens, not our locale. */
const CHILD_ENV = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', TZ: 'UTC' }

export type Postmaster = { pid: number; startedAt: string }

export type Site = {
  binaries: Binaries
  owner: Owner
  data: string
  socket: string
  log: string
  /** Server settings by name, beside the ones every embedded Postgres has. */
  settings: Record<string, string>
  /** False: initdb does not flush (throw-away data). */
  durable: boolean
}

/** The folders under `root` (the state folder's `postgres/`), owned by Postgres's user. */
export async function prepare(
  root: string,
  spec: Pick<Site, 'binaries' | 'owner' | 'settings' | 'durable'>,
): Promise<Site> {
  const data = join(root, String(spec.binaries.major))
  const site = { ...spec, data, socket: join(root, 'socket'), log: join(root, 'postgres.log') }
  if (Buffer.byteLength(site.socket) > SOCKET_PATH_MAX)
    throw refusal(
      'STATE_PATH_LONG',
      `The path ${site.socket} is longer than a socket's folder may be (${SOCKET_PATH_MAX} bytes)`,
      'Set CLUTCH_HOME to a shorter path',
    )
  await mkdir(site.socket, { recursive: true, mode: 0o700 })
  if (spec.owner.other)
    for (const at of [root, site.socket])
      await chown(at, spec.owner.other.uid, spec.owner.other.gid)
  await refuseOtherVersions(root, spec.binaries.major)
  await initialize(site)
  return site
}

async function refuseOtherVersions(root: string, major: number): Promise<void> {
  const found = (await readdir(root)).filter((name) => /^\d+$/.test(name))
  if (found.length === 0 || found.includes(String(major))) return
  throw refusal(
    'DATA_VERSION',
    `${root} holds the data of Postgres ${found.join(', ')}; this program brings Postgres ${major}`,
    `Start the Clutch that made it and take a backup (or use that Postgres by DATABASE_URL), then start from an empty folder and restore`,
  )
}

async function initialize(site: Site): Promise<void> {
  const found = await stat(site.data).catch(() => undefined)
  if (found && found.uid !== site.owner.uid)
    throw refusal(
      'DATA_OWNER',
      `${site.data} belongs to the user ${found.uid}, and Postgres would run as ${site.owner.uid}`,
      `Start as the user it belongs to, or change it: chown -R ${site.owner.uid} ${dirname(site.data)}`,
    )
  if (!found) {
    const draft = `${site.data}.part`
    await rm(draft, { recursive: true, force: true })
    const flags = ['-D', draft, '-U', SUPERUSER, '--auth-local=peer', '--auth-host=reject']
    flags.push('-E', 'UTF8', '--locale-provider=builtin', '--locale=C.UTF-8', '--no-instructions')
    if (!site.durable) flags.push('--no-sync')
    try {
      await run(site.binaries.initdb, flags, { ...site.owner.other, cwd: '/', env: CHILD_ENV })
    } catch (error) {
      throw refusal(
        'INITDB',
        `Postgres cannot make its data folder: ${lastLine(error)}`,
        hint(site),
      )
    }
    await rename(draft, site.data)
  }
  // Written at every start: who we are may have changed, and nobody else's lines belong there.
  const names = [...new Set(site.owner.names)]
  const lines = names.map((name) => `${SUPERUSER} "${name}" ${SUPERUSER}\n`)
  await writeFile(join(site.data, 'pg_hba.conf'), `local all all peer map=${SUPERUSER}\n`)
  await writeFile(join(site.data, 'pg_ident.conf'), lines.join(''))
}

const hint = (site: Site): string =>
  site.owner.other
    ? `The user ${site.owner.uid} must be able to walk to ${dirname(site.data)}: a parent folder may be closed (chmod o+x), or the disk full`
    : 'The disk may be full or read-only'

function lastLine(error: unknown): string {
  const text = error instanceof Error && 'stderr' in error ? String(error.stderr) : messageOf(error)
  return text.trim().split('\n').at(-1) ?? 'no output'
}

/** The postmaster that postmaster.pid names, if it lives and serves this folder. */
export function findPostmaster(data: string): Postmaster | undefined {
  try {
    const pid = Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')[0])
    const argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    const startedAt = startTime(pid)
    return argv.includes(data) && startedAt !== undefined ? { pid, startedAt } : undefined
  } catch {
    return undefined // a stale file: Postgres removes it at the next start
  }
}

/**
 * Removes a postmaster.pid whose pid now belongs to another program, or that a power cut left empty: Postgres would refuse
 * to start. Backends that outlived their postmaster still hold its shared memory, and for that Postgres refuses rightly.
 */
export async function removeStale(data: string, clock: Clock): Promise<void> {
  const path = join(data, 'postmaster.pid')
  const found = await stat(path).catch(() => undefined)
  // One that is just being started has not written its line yet.
  if (!found || clock.now() - found.mtimeMs < STARTING_MS || findPostmaster(data)) return
  await rm(path, { force: true })
}

/**
 * Ends the backends that a killed postmaster left. They notice its death only when they wait for their client, so one
 * whose client keeps asking lives on, and no new postmaster starts while it does. Call it when there is no postmaster.
 */
export async function endOrphans(data: string, clock: Clock): Promise<void> {
  for (const [signal, patienceMs] of [
    ['SIGQUIT', ORPHAN_PATIENCE_MS],
    ['SIGKILL', ORPHAN_PATIENCE_MS],
  ] as const) {
    const deadline = clock.monotonic() + patienceMs
    for (const pid of workersIn(data)) signalTo(pid, signal)
    while (workersIn(data).length > 0 && clock.monotonic() < deadline) await clock.sleep(POLL_MS)
  }
}

/** The processes of Postgres in this folder: all of them have it as their working directory. */
function workersIn(data: string): number[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const here = readlinkSync(`/proc/${name}/cwd`) === data
      const postgres = here && basename(readlinkSync(`/proc/${name}/exe`)).startsWith('postgres')
      return postgres && startTime(Number(name)) !== undefined ? [Number(name)] : []
    } catch {
      return [] // gone meanwhile, or somebody else's
    }
  })
}

function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // It ended by itself.
  }
}

export const isAlive = (postmaster: Postmaster): boolean =>
  startTime(postmaster.pid) === postmaster.startedAt

/** Field 22 of /proc/pid/stat (proc(5)); undefined for a process that is gone or a zombie. */
function startTime(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

/** Starts a postmaster that does not end with us. */
export async function launch(site: Site): Promise<Postmaster> {
  const size = await stat(site.log).then(
    (found) => found.size,
    () => 0,
  )
  if (size > LOG_BYTES_MAX) await rename(site.log, `${site.log}.1`)
  const settings = {
    listen_addresses: '',
    unix_socket_directories: site.socket,
    unix_socket_permissions: '0700',
    max_connections: '100',
    timezone: 'UTC',
    log_timezone: 'UTC',
    log_checkpoints: 'off',
    // Short statements only: compiling them costs more than it saves. Solid disks; no workers for a small machine.
    jit: 'off',
    random_page_cost: '1.1',
    io_method: 'sync',
    // Queues and sessions change the same few rows all day.
    autovacuum_naptime: '15s',
    ...site.settings,
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const log = openSync(site.log, 'a', 0o600)
  try {
    const child = spawn(site.binaries.postgres, ['-D', site.data, ...flags], {
      ...site.owner.other,
      cwd: '/',
      env: CHILD_ENV,
      detached: true,
      stdio: ['ignore', log, log],
    })
    const failed = new Promise<never>((_resolve, reject) => child.once('error', reject))
    const started = new Promise<void>((resolve) => child.once('spawn', resolve))
    await Promise.race([started, failed])
    child.unref()
    const pid = child.pid ?? 0
    return { pid, startedAt: startTime(pid) ?? '' }
  } finally {
    closeSync(log)
  }
}

export type Readiness = 'ready' | 'gone'

/** Waits until the postmaster answers, or is gone. Throws on an answer that will not change, and after `timeoutMs`. */
export async function untilReady(
  site: Site,
  postmaster: Postmaster,
  { clock, timeoutMs }: { clock: Clock; timeoutMs: number },
): Promise<Readiness> {
  const deadline = clock.monotonic() + timeoutMs
  for (;;) {
    const problem = await tryConnect(site.socket)
    if (problem === undefined) return 'ready'
    if (!isAlive(postmaster)) return 'gone'
    const state = sqlState(problem)
    // 57P03: it starts up, recovers or shuts down. Without a state there is no socket yet.
    if (state !== undefined && state !== '57P03' && state !== '53300')
      throw refusal(
        'EMBEDDED_REFUSES',
        `Postgres refuses us: ${messageOf(problem)}`,
        `See ${site.log}`,
      )
    if (clock.monotonic() > deadline)
      throw refusal(
        'EMBEDDED_SLOW',
        `Postgres (pid ${postmaster.pid}) is not ready after ${timeoutMs / 1000} s: ${messageOf(problem)}`,
        `See ${site.log}; after a crash it replays its log, which takes time: start again`,
      )
    await clock.sleep(POLL_MS)
  }
}

async function tryConnect(socket: string): Promise<unknown> {
  const client = new pg.Client({
    host: socket,
    user: SUPERUSER,
    database: 'postgres',
    connectionTimeoutMillis: 2000,
  })
  client.on('error', () => undefined)
  try {
    await client.connect()
    const found = await client.query('select from pg_database where datname = $1', [SUPERUSER])
    if (found.rowCount === 0) await client.query(`create database ${SUPERUSER}`)
    return undefined
  } catch (error) {
    return error
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** The last line of the log that says why Postgres ended. */
export async function lastWords(site: Site): Promise<string> {
  const lines = (await readFile(site.log, 'utf8').catch(() => '')).trim().split('\n').slice(-20)
  return lines.findLast((line) => /FATAL|PANIC|error/.test(line)) ?? lines.at(-1) ?? 'no output'
}

/** SIGINT is a fast shutdown: open transactions are rolled back. SIGQUIT, if that hangs, leaves it to recover later. */
export async function stopPostmaster(postmaster: Postmaster, clock: Clock): Promise<void> {
  for (const [signal, patienceMs] of [
    ['SIGINT', 30_000],
    ['SIGQUIT', 10_000],
  ] as const) {
    if (!isAlive(postmaster)) return
    signalTo(postmaster.pid, signal)
    const deadline = clock.monotonic() + patienceMs
    while (isAlive(postmaster) && clock.monotonic() < deadline) await clock.sleep(POLL_MS)
  }
  if (isAlive(postmaster)) throw new Error(`postgres ${postmaster.pid} does not stop`)
}

const refusal = (reason: string, message: string, next: string): AppError =>
  new AppError('INVALID_STATE', message, { details: { reason, next } })

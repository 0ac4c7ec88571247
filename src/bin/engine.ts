// clutch-engine: the API and the gateway. Wiring only; see `clutch-engine --help` for its settings.
//
// Starts in the order of need (state folder, database, keys, gateway, API) and ends in the reverse. Exit codes: 0 stopped,
// 1 failed, 78 (EX_CONFIG) what starting it again cannot help: a wrong setting, a state folder in use.
import { readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createAuth, ensureDevKey, type Auth } from '#engine/auth.ts'
import { configHelp, parseConfig, type EngineConfig } from '#engine/config.ts'
import type { Engine } from '#engine/engine.ts'
import type { Prepare } from '#engine/functions/artifacts.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import type { Invoker } from '#engine/functions/invoker.ts'
import { openGatewayKeys } from '#engine/gateway/gateway-keys.ts'
import { startGateway, type RunningGateway } from '#engine/gateway/start-gateway.ts'
import { listenHttp } from '#engine/http/listen.ts'
import { createListener } from '#engine/http/serve.ts'
import { historyPruneLoop } from '#engine/loops/history-prune.ts'
import { historyLoop } from '#engine/loops/history.ts'
import { livenessLoop } from '#engine/loops/liveness.ts'
import { pruneLoop } from '#engine/loops/prune.ts'
import { slotsLoop } from '#engine/loops/slots.ts'
import { createMetrics } from '#engine/metrics.ts'
import { RateLimit } from '#engine/rate-limit.ts'
import { systemClock as clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { createLogger, type Logger } from '#lib/log.ts'
import { Loop } from '#lib/loop.ts'
import { systemRandom as random } from '#lib/random.ts'
import { openBlobs } from '#store/blobs.ts'
import { connect, type StoreTarget } from '#store/connect.ts'
import { startEmbedded } from '#store/embedded.ts'
import { releaseKeysOfEngine } from '#store/idempotency.ts'
import { openKeyring } from '#store/keyring.ts'
import { migrate } from '#store/migrate.ts'
import { Listener } from '#store/notify.ts'
import { Preparer } from '#wasm/preparer.ts'
import {
  engineIdOf,
  lockStateFolder,
  openStateFolder,
  statePath,
  type StateFolder,
} from '#store/state-folder.ts'

const EX_CONFIG = 78
/** Beyond the time that work in flight has: closing sessions, the last writes, Postgres's own shutdown. */
const STOP_GRACE_MS = 20_000

type Undo = () => unknown

async function main(): Promise<void> {
  const argv = process.argv.slice(2)
  if (argv.includes('--help')) return void process.stdout.write(configHelp())
  if (argv.includes('--version')) return void process.stdout.write(`${await ownVersion()}\n`)
  // What was started, to be undone in reverse.
  const undo: Undo[] = []
  const stopping = new AbortController()
  let log: Logger | undefined
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => {
      if (stopping.signal.aborted) process.exit(1)
      stopping.abort()
    })
  try {
    const config = parseConfig(process.env, argv)
    log = createLogger('clutch-engine', config.logLevel)
    await start(config, { log, undo, signal: stopping.signal })
    if (!stopping.signal.aborted)
      await new Promise((resolve) => stopping.signal.addEventListener('abort', resolve))
    clock.after(config.shutdownMs + STOP_GRACE_MS, () => process.exit(1))
    await unwind(undo, log)
    process.exitCode = 0
  } catch (error) {
    say(error)
    process.exitCode = exitCodeOf(error)
    await unwind(undo, log)
  }
  // Whatever still holds the loop open (a socket that lingers) is of no use any more.
  process.exit()
}

function exitCodeOf(error: unknown): number {
  const final = error instanceof AppError && ['INVALID', 'INVALID_STATE'].includes(error.code)
  return final ? EX_CONFIG : 1
}

function say(error: unknown): void {
  const next = error instanceof AppError ? error.details.next : undefined
  const text =
    error instanceof AppError ? messageOf(error) : String((error as Error).stack ?? error)
  process.stderr.write(`clutch-engine: ${text}\n${next === undefined ? '' : `  → ${next}\n`}`)
}

async function unwind(undo: Undo[], log: Logger | undefined): Promise<void> {
  for (const step of undo.toReversed())
    try {
      await step()
    } catch (error) {
      log?.error({ err: error }, 'a part did not stop')
    }
}

type Starting = { log: Logger; undo: Undo[]; signal: AbortSignal }

async function start(config: EngineConfig, { log, undo, signal }: Starting): Promise<void> {
  const folder = await openStateFolder(
    statePath({ clutchHome: config.home, home: homedir(), uid: process.getuid?.() ?? 0 }),
  )
  const lock = lockStateFolder(folder, { clock, program: 'clutch-engine' })
  undo.push(() => lock.release())
  const id = await engineIdOf(folder, { clock, random })
  const version = await ownVersion()
  const target = await openDatabase(config, folder, { log, undo })
  for (const name of await migrate(target)) log.info({ migration: name }, 'migrated')
  const db = connect(target)
  undo.push(() => db.destroy())
  await releaseKeysOfEngine(db, id)
  const keyring = await openKeyring(config.keyring ?? folder.secrets, random)
  const server = await listenHttp({ host: config.httpHost, port: config.httpPort }, clock)
  undo.push(() => server.stop(config.shutdownMs))
  const auth = await createAuth({
    db,
    clock,
    random,
    log,
    config,
    url: config.publicUrl ?? server.url,
    secret: keyring.auth.current.bytes().toString('base64'),
  })
  const metrics = createMetrics({ ofProcess: true })
  const blobs = await openBlobs(config.blobs ?? folder.blobs, { clock, random })
  const gateway = await startGateway({
    engineId: id,
    version,
    db,
    clock,
    random,
    log,
    keys: await openGatewayKeys(keyring, id, { clock, random }),
    config: {
      host: config.sessionHost,
      port: config.sessionPort,
      unregisteredPerAddress: config.unregisteredPerAddress,
    },
  })
  undo.push(() => gateway.stop())
  const prepare = jailedPrepare({ log, undo })
  const invoker = createInvoker({ id, db, blobs, clock, random, log, metrics, gateway, prepare })
  hearChanges(target, invoker, { log, undo })
  const rateLimit = new RateLimit(limitsOf(config), clock)
  const claims = new Map<string, number>()
  const parts = { id, version, config, clock, random, log, metrics, rateLimit, claims }
  const loops = loopsOf({ ...parts, db, blobs, auth, invoker }, gateway)
  for (const loop of loops) loop.start()
  undo.push(async () => {
    await Promise.all(loops.map((loop) => loop.stop()))
    await invoker.stop()
    await auth.keys.flush()
  })
  const own = { ...parts, db, keyring, blobs, auth, gateway, invoker }
  const engine: Engine = { ...own, loops: [...loops, ...gateway.loops] }
  if (config.dev) await writeDevKey(engine, folder)
  await sayOwnerLink(auth)
  if (signal.aborted) return
  server.serve(createListener(engine, () => server.stopping()))
  // The server ends first: what is in flight still needs everything else.
  undo.push(() => server.stop(config.shutdownMs))
  const sessions = `${config.sessionHost}:${gateway.port}`
  const ready = { ready: true, url: auth.url, sessions, id }
  process.stdout.write(`${JSON.stringify(ready)}\n`)
}

/** Components are a stranger's bytes: they are read in the jail, as much of it as this machine and user give. */
function jailedPrepare({ log, undo }: Omit<Starting, 'signal'>): Prepare {
  const preparer = new Preparer({
    clock,
    node: process.execPath,
    onOpen: (notes) => {
      if (notes.length === 0) return
      const names = notes.map(({ name }) => name).join(', ')
      log.info(
        { missing: notes },
        `components are prepared without ${names} (docs/concepts/trust.md)`,
      )
    },
  })
  undo.push(() => preparer.close())
  return preparer.prepare.bind(preparer)
}

/** What other engines change is told to whoever remembers it. */
function hearChanges(
  target: StoreTarget,
  invoker: Invoker,
  { log, undo }: Omit<Starting, 'signal'>,
): void {
  const onChange = invoker.changed.bind(invoker)
  const onHearing = invoker.hearing.bind(invoker)
  const listener = new Listener({ target, onChange, onHearing }, { clock, random, log })
  listener.start()
  undo.push(() => listener.stop())
}

const loopsOf = (
  engine: Omit<Engine, 'keyring' | 'gateway' | 'loops'>,
  gateway: RunningGateway,
): Loop[] => [
  livenessLoop({ ...engine, engineId: engine.id, gateway }),
  slotsLoop(engine),
  historyLoop(engine),
  historyPruneLoop(engine),
  pruneLoop(engine),
  new Loop(engine.auth.keys.loop(), engine),
]

const limitsOf = (config: EngineConfig): ConstructorParameters<typeof RateLimit>[0] => ({
  enroll: config.enrollsPerMinute,
  deploy: config.deploysPerMinute,
  invoke: config.invokesPerMinute,
  'public-invoke': config.publicInvokesPerMinute,
  'sign-in': config.signInsPerMinute,
})

async function openDatabase(
  config: EngineConfig,
  folder: StateFolder,
  { log, undo }: Omit<Starting, 'signal'>,
): Promise<StoreTarget> {
  if (config.databaseUrlFile !== undefined)
    return { url: (await readFile(config.databaseUrlFile, 'utf8')).trim() }
  if (config.databaseUrl !== undefined) return { url: config.databaseUrl }
  const embedded = await startEmbedded(
    { folder, onEvent: (event) => log.warn(event, 'the embedded database') },
    { clock, random },
  )
  undo.push(() => embedded.stop())
  log.info({ pid: embedded.pid, adopted: embedded.adopted }, 'the embedded database runs')
  return embedded.target
}

async function writeDevKey(engine: Engine, folder: StateFolder): Promise<void> {
  const path = join(folder.secrets, 'dev-key')
  const known = (await readIfThere(path))?.trim()
  const secret = await ensureDevKey(engine, known)
  if (secret !== known) await writeFile(path, `${secret}\n`, { mode: 0o600 })
}

/** For the person who reads the engine's first lines; it works once. */
async function sayOwnerLink(auth: Auth): Promise<void> {
  const link = await auth.ownerLink()
  if (link !== undefined)
    process.stdout.write(`Nobody owns this platform yet. Open within a day, once: ${link}\n`)
}

async function ownVersion(): Promise<string> {
  const path = join(import.meta.dirname, '../../package.json')
  const { version } = JSON.parse(await readFile(path, 'utf8')) as { version: string }
  return version
}

async function readIfThere(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  })
}

await main()

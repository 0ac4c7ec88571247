// A whole platform on this machine: the engine, one local node, simulated nodes, each a program of its own.
// 1. What is started is stopped, in the opposite order, whatever happens in between.
// 2. Starting again on the same state folder finds the same platform: the node is enrolled once.
import { mkdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createApi, type Api } from '#cli/call.ts'
import { listNodes } from '#cli/list-pages.ts'
import type { Cli } from '#cli/cli.ts'
import { isFree, freePort, requirePort } from '#cli/dev/ports.ts'
import { Program, type ProgramSpec } from '#cli/dev/program.ts'
import type { Steps } from '#cli/dev/steps.ts'
import { httpFetch } from '#cli/http-fetch.ts'
import {
  devKeyPath,
  readKey,
  readLocalPlatform,
  removeDevFile,
  startOf,
  stateHome,
  writeDevFile,
} from '#cli/local-platform.ts'
import { AppError, messageOf } from '#lib/error.ts'

export type PlatformOptions = {
  /** The state folder; undefined: D20's. */
  home: string | undefined
  /** Undefined: the usual port, or a free one when `anyPort`. */
  port: number | undefined
  sessionPort: number | undefined
  anyPort: boolean
  simulated: number
}

const PORTS = { http: 7070, sessions: 7443 }
const LOCAL_NODE = 'local'
/** The first start makes a database; on a busy machine that takes a while. */
const ENGINE_READY_MS = 120_000
const NODE_READY_MS = 60_000
/** Beyond that, for each simulated one: it is enrolled, dials and passes its acceptance. */
const SIMULATED_READY_MS = 50
/** What clutch-sim calls its nodes. */
const SIMULATED_LABEL = 'simulated'
const POLL_MS = 100
/** An engine lets work in flight end and stops its Postgres. */
const STOP_GRACE_MS = 20_000
/** EX_CONFIG of sysexits.h: a node that the engine refuses for good. */
const EX_CONFIG = 78

export type Place = {
  state: string
  url: string
  httpPort: number
  sessionPort: number
}

/** Where it will be. Errors: INVALID_STATE `ALREADY_RUNNING`, `STATE_FOLDER`, `PORT_TAKEN`. */
export async function choosePlace(cli: Cli, options: PlatformOptions): Promise<Place> {
  const clutchHome = options.home ?? cli.settings.clutchHome
  const at = { home: cli.settings.home, clutchHome }
  const running = await readLocalPlatform(at, cli.uid)
  if (running !== undefined)
    throw new AppError(
      'INVALID_STATE',
      `a platform runs here already: ${running.url} (pid ${running.pid})`,
      {
        details: {
          reason: 'ALREADY_RUNNING',
          next: 'Use that one, stop it, or give another --home',
        },
      },
    )
  const state = stateHome(at, cli.uid)
  await makeStateFolder(state)
  const httpPort = await choosePort(options.port, options.anyPort, 'http')
  const sessionPort = await choosePort(options.sessionPort, options.anyPort, 'sessions')
  return {
    state,
    url: `http://127.0.0.1:${httpPort}`,
    httpPort,
    sessionPort,
  }
}

async function makeStateFolder(state: string): Promise<void> {
  await mkdir(join(state, 'logs'), { recursive: true, mode: 0o711 }).catch((error: unknown) => {
    throw new AppError('INVALID_STATE', `the state folder ${state} cannot be made`, {
      cause: error,
      details: {
        reason: 'STATE_FOLDER',
        next: 'Name a folder of your own, on a disk with room: --home, or CLUTCH_HOME',
      },
    })
  })
}

async function choosePort(
  wanted: number | undefined,
  any: boolean,
  kind: 'http' | 'sessions',
): Promise<number> {
  const use = kind === 'http' ? 'tcp' : 'tcp+udp'
  const port = wanted ?? PORTS[kind]
  if (wanted === undefined && any) return (await isFree(port, use)) ? port : freePort(use)
  await requirePort(port, use, kind === 'http' ? '--port' : '--session-port')
  return port
}

export class Platform {
  readonly #cli: Cli
  readonly #steps: Steps
  readonly place: Place
  readonly #programs: Program[] = []
  #api: Api | undefined
  orgId = ''

  constructor(cli: Cli, steps: Steps, place: Place) {
    this.#cli = cli
    this.#steps = steps
    this.place = place
  }

  get programs(): readonly Program[] {
    return this.#programs
  }

  /** The client that acts by `secrets/dev-key`. Only after `startEngine`. */
  get api(): Api {
    if (this.#api === undefined) throw new Error('the engine is not started')
    return this.#api
  }

  async startEngine(): Promise<void> {
    const { state, url, httpPort, sessionPort } = this.place
    await this.#steps.run('engine is ready', async () => {
      const program = await this.#start({
        name: 'engine',
        file: 'engine.ts',
        flags: {
          home: state,
          dev: 'true',
          'http-port': String(httpPort),
          'session-port': String(sessionPort),
        },
        // AC-3: simulated nodes enroll and dial all at once.
        env: { CLUTCH_ENROLLS_PER_MINUTE: '100000', CLUTCH_UNREGISTERED_PER_ADDRESS: '10000' },
      })
      await this.#until(program, ENGINE_READY_MS, () => isReady(`${url}/ready`, this.#cli.signal))
      await this.#connect()
      return { note: url }
    })
    await writeDevFile(state, {
      url,
      sessions: `127.0.0.1:${sessionPort}`,
      pid: process.pid,
      started: await startOf(process.pid),
    })
  }

  async #connect(): Promise<void> {
    const { state, url, sessionPort } = this.place
    const key = await readKey(state)
    if (key === undefined)
      throw new AppError('INTERNAL', `the engine left no key in ${state}/secrets/dev-key`)
    const { version, clock, random, signal } = this.#cli
    const credential = { kind: 'api-key', secret: key, from: `${state}/secrets/dev-key` } as const
    const sessions = `127.0.0.1:${sessionPort}`
    const target = { url, credential, orgId: undefined, sessions }
    this.#api = createApi({ target, version, clock, random, signal })
    const { orgs } = await this.#api.access.whoami({})
    this.orgId = orgs[0]?.id ?? ''
  }

  async startNode(): Promise<void> {
    await this.#steps.run(`node ${LOCAL_NODE} takes work`, async () => {
      const folder = join(this.place.state, 'nodes')
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const tokenFile = join(folder, `${LOCAL_NODE}.token`)
      const enrolled = await this.#ensureEnrolled(join(folder, LOCAL_NODE), tokenFile)
      const program = await this.#start({
        name: `node ${LOCAL_NODE}`,
        file: 'noded.ts',
        flags: {
          server: `127.0.0.1:${this.place.sessionPort}`,
          node: LOCAL_NODE,
          runtimes: 'wasm',
          'data-dir': join(folder, LOCAL_NODE),
          ...((await exists(tokenFile)) ? { 'token-file': tokenFile } : {}),
        },
        env: {},
      })
      await this.#until(program, NODE_READY_MS, () => this.#isSchedulable(LOCAL_NODE))
      await rm(tokenFile, { force: true })
      return { note: enrolled ? 'enrolled' : 'enrolled before' }
    })
  }

  /** `count` nodes that speak the real protocol, all in one program. */
  async startSimulated(count: number): Promise<void> {
    await this.#steps.run(`${count} simulated nodes take work`, async () => {
      const { state, url, sessionPort } = this.place
      const program = await this.#start({
        name: 'sim',
        file: 'sim.ts',
        flags: { nodes: String(count), server: `127.0.0.1:${sessionPort}`, url },
        env: { CLUTCH_API_KEY_FILE: devKeyPath(state), CLUTCH_ORG: this.orgId },
      })
      await this.#until(program, NODE_READY_MS + count * SIMULATED_READY_MS, async () => {
        const takesWork = (await listNodes(this.api, this.orgId)).filter((n) => n.schedulable)
        return takesWork.filter((n) => n.label === SIMULATED_LABEL).length >= count
      })
      return { note: 'they answer work without doing it' }
    })
  }

  /** The one-time link of the first owner, while there is none. */
  async ownerLink(): Promise<string | undefined> {
    const said = (await this.#programs[0]?.output()) ?? ''
    return /https?:\/\/[^\s"]+\/(?:setup|join|owner)[^\s"]*/.exec(said)?.[0]
  }

  /** Leaves a token file when the node needs one; true when it was enrolled now. */
  async #ensureEnrolled(dataDir: string, tokenFile: string): Promise<boolean> {
    const known = (await listNodes(this.api, this.orgId)).find(
      (node) => node.node_id === LOCAL_NODE,
    )
    const orgId = this.orgId
    if (known === undefined) {
      // An identity of an earlier platform in this folder opens nothing here.
      await rm(dataDir, { recursive: true, force: true })
      const made = await this.api.compute.nodes.enroll({
        orgId,
        nodeId: LOCAL_NODE,
        trustTier: 'secure',
        label: 'this machine',
      })
      await writeToken(tokenFile, made.token)
      return true
    }
    if ((await exists(dataDir)) || (await exists(tokenFile))) return false
    const made = await this.api.compute.nodes.revokeIdentity({ orgId, id: known.id })
    await writeToken(tokenFile, made.token)
    return true
  }

  async #isSchedulable(nodeId: string): Promise<boolean> {
    const { node } = await this.api.compute.nodes.get({ orgId: this.orgId, id: nodeId })
    if (node.failure !== null)
      throw new AppError('INVALID_STATE', `node ${nodeId} failed its acceptance: ${node.failure}`, {
        details: { reason: 'NODE_FAILED' },
      })
    return node.schedulable
  }

  async #start(given: {
    name: string
    file: string
    flags: Record<string, string>
    env: Record<string, string>
  }): Promise<Program> {
    const { root, process: parent, clock, out } = this.#cli
    const { name, file, flags, env } = given
    const spec: ProgramSpec = {
      name,
      argv: [
        join(root, 'src/bin', file),
        ...Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`),
      ],
      env: { ...withoutSecrets(parent.env, file), ...env },
      logFile: join(this.place.state, 'logs', `${name.replaceAll(' ', '-')}.log`),
      finalCodes: [EX_CONFIG],
    }
    const program = new Program(spec, { clock, say: (text) => out.note(`  ! ${text}`) })
    this.#programs.push(program)
    await program.start()
    return program
  }

  /** Waits until the probe says yes. Errors: what ended the program, or that it took too long. */
  async #until(program: Program, deadlineMs: number, probe: () => Promise<boolean>): Promise<void> {
    const { clock, signal } = this.#cli
    const deadline = clock.monotonic() + deadlineMs
    for (;;) {
      if (program.ending !== undefined) throw await startFailure(program)
      if (await probe()) break
      if (clock.monotonic() > deadline)
        throw new AppError(
          'UNAVAILABLE',
          `${program.name} is not ready after ${deadlineMs / 1000} s`,
          {
            details: { reason: 'NOT_READY', next: `Its log: ${program.logFile}` },
          },
        )
      await clock.sleep(POLL_MS, signal)
    }
    program.keepRunning()
  }

  /** Stops the newest first. Never throws: there is nobody to tell. */
  async stop(): Promise<void> {
    for (const program of this.#programs.toReversed())
      await program
        .stop(STOP_GRACE_MS)
        .catch((error: unknown) => this.#cli.out.note(`  ! ${program.name}: ${messageOf(error)}`))
    await removeDevFile(this.place.state).catch(() => {})
  }
}

const isReady = (url: string, signal: AbortSignal): Promise<boolean> =>
  httpFetch(new Request(url, { signal })).then(
    async (response) => {
      await response.body?.cancel()
      return response.ok
    },
    () => false,
  )

/** The last thing that it wrote says best why it ended. */
async function startFailure(program: Program): Promise<AppError> {
  const lines = (await program.output()).split('\n').filter((line) => line.trim() !== '')
  const said = lines.slice(-3).map((line) => line.slice(0, 500))
  return new AppError('UNAVAILABLE', `${program.name} ended (${program.ending?.text ?? ''})`, {
    details: { reason: 'START_FAILED', also: said, next: `Its log: ${program.logFile}` },
  })
}

/** The environment without what is the CLI's own, and, but for the engine, without what is the engine's. */
function withoutSecrets(
  env: Readonly<Record<string, string | undefined>>,
  file: string,
): Record<string, string | undefined> {
  const others = file === 'engine.ts' ? /^CCP_/ : /^(CCP_|CLUTCH_|DATABASE_URL)/
  return Object.fromEntries(Object.entries(env).filter(([name]) => !others.test(name)))
}

async function writeToken(file: string, token: string | null): Promise<void> {
  if (token === null) throw new AppError('INTERNAL', 'the engine answered no token')
  await writeFile(file, token, { mode: 0o600 })
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )

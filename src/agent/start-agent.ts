// The agent's life: opens its folder, keeps a session with the engine, serves what the engine asks, and leaves.
//
// Invariants
// 1. An operator hears once why a dial failed, and again when the reason changes: not at every try.
// 2. On the way out nothing new is taken, what runs may end within the grace, and no process is left.
import { mkdir, readFile } from 'node:fs/promises'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import type { FramedStream } from '#protocol/framed-stream.ts'
import type { StreamHeader } from '#protocol/messages.ts'
import type { Transport } from '#protocol/pipe.ts'
import { Session, type Link, type SessionHost } from '#session/session.ts'
import { Supervisor, type Ended, type SupervisorDeps } from '#session/supervisor.ts'
import type { Agent } from '#agent/agent.ts'
import { Commands } from '#agent/commands.ts'
import type { AgentConfig } from '#agent/config.ts'
import { wasmDriver } from '#agent/drivers/wasm/driver.ts'
import type { Driver } from '#agent/driver.ts'
import { openEnrollment } from '#agent/enrollment.ts'
import { Journal } from '#agent/journal.ts'
import { manifestOf, readMachine } from '#agent/manifest.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import { openJail } from '#wasm/jail/open-jail.ts'

export type AgentDeps = {
  version: string
  config: AgentConfig
  clock: Clock
  random: Random
  log: Logger
  /** Path of the Node binary that runs guests. */
  node: string
}

/** Errors: those of openEnrollment and Journal.open; INVALID `TOKEN_FILE`. */
export async function openAgent(deps: AgentDeps): Promise<Agent> {
  const { config, clock, random } = deps
  const { dataDir } = config
  await makeDataDir(dataDir)
  const journal = Journal.open(dataDir)
  let jail: Jail | undefined
  try {
    const token = await tokenOf(config)
    const { nodeId } = config
    const tokenFile = config.token && 'file' in config.token ? config.token.file : undefined
    const given = { nodeId, token, tokenFile }
    const enrollment = await openEnrollment({ dataDir, journal, random, ...given })
    jail = await openJail({ clock, node: deps.node, uids: config.jailUids })
    sayMissing(jail, deps.log)
    const manifest = manifestOf(readMachine(), config, jail.missing)
    const drivers: Driver[] = []
    if (config.runtimes.includes('wasm'))
      drivers.push(
        await wasmDriver({ clock, dataDir, node: deps.node, jail, memMb: manifest.memMb }),
      )
    return { ...deps, journal, enrollment, jail, manifest, drivers }
  } catch (error) {
    jail?.close()
    journal.close()
    throw error
  }
}

export class RunningAgent {
  readonly #agent: Agent
  readonly #supervisor: Supervisor
  readonly #commands: Commands
  readonly #streams = new Set<Promise<void>>()
  readonly #saidOf = { failure: '' }
  #leaving = false

  constructor(agent: Agent) {
    this.#agent = agent
    const { clock, random, log, journal } = agent
    this.#commands = new Commands({
      clock,
      log,
      journal,
      send: (message) => this.#supervisor.session?.send(message),
      check: (runtime, signal) => this.#check(runtime, signal),
    })
    this.#supervisor = new Supervisor({
      clock,
      random,
      attempt: (ways) => this.#attempt(ways),
      onRetry: (outcome, waitMs) => this.#sayRetry(outcome, waitMs),
    })
  }

  /** Resolves when the agent has left, or when an operator must act; nothing of it runs then. */
  async run(): Promise<Ended> {
    const ended = await this.#supervisor.run()
    this.#commands.stop()
    await Promise.all(this.#agent.drivers.map((driver) => driver.close()))
    await Promise.all(this.#streams)
    this.#agent.jail.close()
    this.#agent.journal.close()
    return ended
  }

  /** Leaves the engine: what runs may end within `graceMs`, then it is ended. `run` resolves after it. */
  async stop(graceMs: number): Promise<void> {
    this.#leaving = true
    this.#supervisor.leave()
    const { clock, log } = this.#agent
    if (this.#streams.size > 0) {
      log.info({ running: this.#streams.size }, `waiting up to ${graceMs} ms for what runs`)
      const { promise: late, resolve } = Promise.withResolvers<void>()
      const cancel = clock.after(graceMs, resolve)
      await Promise.race([Promise.all(this.#streams), late])
      cancel()
    }
    this.#supervisor.close()
  }

  #attempt(ways: readonly Transport[] | undefined): Session {
    const { config, enrollment, clock, random } = this.#agent
    const { server, transport } = config
    const transports = transport === 'auto' ? ways : [transport]
    return new Session({
      server,
      identity: enrollment.identity,
      clock,
      random,
      host: this.#host(),
      ...(transports === undefined ? {} : { transports }),
    })
  }

  #host(): SessionHost {
    const { config, enrollment, manifest, version } = this.#agent
    return {
      register: () => ({
        agentVersion: version,
        nodeId: config.nodeId,
        ...enrollment.proof(),
        manifest,
        community: config.community,
        jailer: config.jailer,
      }),
      pin: () => enrollment.pin(),
      certificatePem: () => enrollment.certificatePem(),
      welcomed: (welcome, link) => {
        enrollment.welcomed(welcome)
        this.#sayWelcome(link, welcome.epoch)
      },
      desired: (generation) => this.#converge(generation),
      command: (command) => this.#commands.take(command),
      cancel: (id) => this.#commands.cancel(id),
      renewed: (certificate) => enrollment.renewed(certificate),
      stream: (header, stream) => this.#serve(header, stream),
    }
  }

  /** Nothing is desired yet but to be there: each generation is reached at once, journal first. */
  #converge(generation: number): void {
    if (generation < 1) return
    this.#agent.journal.saveGeneration(generation)
    this.#supervisor.session?.send({ t: 'observed', generation })
  }

  #serve(header: StreamHeader, stream: FramedStream): void {
    const driver = this.#agent.drivers.find(({ runtime }) => runtime === RUNTIME_OF[header.t])
    // The engine takes a stream that ends without a word as the node's failure, and goes elsewhere.
    if (!driver || this.#leaving) return stream.destroy()
    const served = driver.serve(header, stream).catch((error) => {
      this.#agent.log.error({ err: error }, 'a stream failed')
      stream.destroy()
    })
    this.#streams.add(served)
    served.finally(() => this.#streams.delete(served)).catch(() => undefined)
  }

  async #check(runtime: string, signal: AbortSignal): ReturnType<Driver['check']> {
    const driver = this.#agent.drivers.find((each) => each.runtime === runtime)
    if (driver) return driver.check(signal)
    return { ok: false, output: `this agent does not run ${runtime}` }
  }

  #sayWelcome({ transport, others }: Link, epoch: number): void {
    this.#saidOf.failure = ''
    const { config, log } = this.#agent
    const { host, port } = config.server
    const why = others.map((other) => `${NAMES[other.transport]}: ${other.reason}`).join('; ')
    log.info(
      { server: `${host}:${port}`, transport, epoch },
      `connected to ${host}:${port} over ${NAMES[transport]}${why === '' ? '' : ` (${why})`}`,
    )
  }

  #sayRetry(outcome: Parameters<SupervisorDeps['onRetry']>[0], waitMs: number): void {
    const { log } = this.#agent
    const { reason, message } = outcome
    if (outcome.kind === 'served')
      return log.warn({ reason, waitMs: Math.round(waitMs) }, `the session ended: ${message}`)
    const line = `no session: ${message}`
    if (this.#saidOf.failure === line) return log.debug({ reason }, line)
    this.#saidOf.failure = line
    log.warn({ reason }, `${line}; trying on`)
  }
}

/** A node runs functions without a layer too; whoever owns the machine should know. */
function sayMissing({ notes }: Jail, log: Logger): void {
  const bubblewrap = notes.find(({ name }) => name === 'bubblewrap')
  if (bubblewrap !== undefined)
    log.warn(
      `bubblewrap holds no functions here (${bubblewrap.why}): they run without their own view of files, network and processes. Install it (apt-get install bubblewrap), let users make user namespaces, and start again`,
    )
  const others = notes.filter(({ name }) => name !== 'bubblewrap')
  if (others.length > 0)
    log.info(
      { missing: others },
      `functions run without ${others.map(({ name }) => name).join(', ')}: docs/concepts/trust.md says what each holds`,
    )
}

const NAMES = { quic: 'QUIC', tls: 'TCP' } as const
const RUNTIME_OF: Record<StreamHeader['t'], Driver['runtime']> = { invoke: 'wasm' }

async function makeDataDir(dataDir: string): Promise<void> {
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 })
  } catch (cause) {
    throw new AppError('INVALID_STATE', `the data folder ${dataDir} cannot be made`, {
      cause,
      details: { reason: 'DATA_DIR', next: 'give a folder of your own with --data-dir' },
    })
  }
}

async function tokenOf({ token }: AgentConfig): Promise<string | undefined> {
  if (token === undefined || 'text' in token) return token?.text
  try {
    const text = (await readFile(token.file, 'utf8')).trim()
    return text === '' ? undefined : text
  } catch (cause) {
    // A token file that was removed or emptied after the first start is as it should be: the journal knows enough.
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined
    throw new AppError('INVALID', `the token file ${token.file} cannot be read`, {
      cause,
      details: { reason: 'TOKEN_FILE', next: 'let the user of the agent read it' },
    })
  }
}

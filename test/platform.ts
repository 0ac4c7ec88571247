// A whole platform of real processes for tests: an engine with its own Postgres, agents, an org key, the CLI's client.
// 1. Everything lives under one temporary folder and is ended by pid when the scope ends.
// 2. Ending is a test of its own: whatever descended from our programs must be gone, the postmaster too.
// 3. Ports stay the same over restarts of the engine: agents dial them again.
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { contract } from '#api/contract.ts'
import { createApi, type Api } from '#cli/call.ts'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { connect, urlOf, type Store } from '#store/connect.ts'
import { slotDrift } from '#store/functions/slots.ts'
import { allProcesses, descendants, isGone, processAt, type Proc } from '#sim/bench/process-tree.ts'
import { freePort, Program } from '#sim/bench/program.ts'
import type { z } from 'zod'

type Scope = { after(fn: () => Promise<void>): void }
type Inputs<T extends { '~orpc': { inputSchema?: z.ZodType } }> = z.input<
  NonNullable<T['~orpc']['inputSchema']>
>
type EnrollInput = Partial<Inputs<typeof contract.compute.nodes.enroll>>
type DeployInput = Partial<Inputs<typeof contract.compute.functions.deploy>>
type InvokeInput = Partial<Inputs<typeof contract.compute.functions.invoke>>
export type NodeRecord = Awaited<ReturnType<Api['compute']['nodes']['get']>>['node']
export type Invoked = Awaited<ReturnType<Api['compute']['functions']['invoke']>>
type FunctionRecord = Awaited<ReturnType<Api['compute']['functions']['deploy']>>['function']

const EXAMPLES = join(import.meta.dirname, '../examples')
const EXIT_WITHIN_MS = 20_000
/** A child of a killed program is gone by then (the faults tests measure it more strictly). */
const GONE_WITHIN_MS = 5_000

export type PlatformOptions = {
  /** Flags of clutch-engine: { 'sign-up': 'open' }. */
  settings?: Record<string, string>
}

export type NodeOptions = EnrollInput & {
  /** Further flags of clutch-noded. */
  flags?: readonly string[]
  runtimes?: string
}

/** Postgres runs as a user of its own when we are root: it must be able to walk there (D20). */
function stateFolder(): string {
  const home = mkdtempSync(join(tmpdir(), 'clutch-e2e-'))
  chmodSync(home, 0o711)
  return home
}

export async function startPlatform(
  scope: Scope,
  options: PlatformOptions = {},
): Promise<Platform> {
  const home = stateFolder()
  const ports = { http: await freePort(), session: await freePort() }
  const platform = new Platform({ home, ports, settings: options.settings ?? {} })
  try {
    await platform.startEngine()
  } catch (error) {
    await platform.end().catch(() => undefined)
    throw error
  }
  scope.after(() => platform.end())
  // A file that fails before its tests begin runs no hook.
  process.once('exit', () => platform.abandon())
  return platform
}

const DATABASE = { user: 'clutch', database: 'clutch' }
const databaseUrl = (home: string): string =>
  urlOf({ ...DATABASE, host: join(home, 'postgres/socket') })

type Site = {
  home: string
  ports: { http: number; session: number }
  settings: Record<string, string>
  /** Whose Postgres an engine without one of its own uses. */
  databaseHome?: string
}

export class Platform {
  readonly #site: Site
  readonly #engines: Program[] = []
  readonly #agents = new Set<Agent>()
  readonly #others: Platform[] = []
  #store: Store | undefined
  #key: string | undefined
  #api: Api | undefined
  #orgId = ''

  constructor(site: Site) {
    this.#site = site
  }

  get home(): string {
    return this.#site.home
  }

  get url(): string {
    return `http://127.0.0.1:${this.#site.ports.http}`
  }

  /** Where agents dial. */
  get sessions(): string {
    return `127.0.0.1:${this.#site.ports.session}`
  }

  get api(): Api {
    assert.ok(this.#api, 'the engine has not started')
    return this.#api
  }

  get orgId(): string {
    return this.#orgId
  }

  /** The key of the platform's org, as `ccp dev` uses it. */
  get key(): string {
    return this.#key ?? ''
  }

  /** The engine that runs, or ran last. */
  get engine(): Program {
    const engine = this.#engines.at(-1)
    assert.ok(engine, 'no engine was started')
    return engine
  }

  /** What every engine said, in order. */
  get engineLog(): string {
    return this.#engines.map((one) => one.output).join('')
  }

  get agents(): readonly Agent[] {
    return [...this.#agents]
  }

  /** A direct way to the rows. */
  get store(): Store {
    const { home, databaseHome = home } = this.#site
    const host = join(databaseHome, 'postgres/socket')
    return (this.#store ??= connect({ ...DATABASE, host }, { max: 2 }))
  }

  /** Resolves when /ready says yes. */
  async startEngine(): Promise<void> {
    const { home, ports, settings, databaseHome } = this.#site
    const flags = { 'http-port': ports.http, 'session-port': ports.session, ...settings }
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)])
    const engine = new Program({
      name: 'clutch-engine',
      // The key of `ccp dev` is one an org: a second engine would replace the first one's.
      args: ['--home', home, ...(databaseHome === undefined ? ['--dev'] : []), ...args],
      env: databaseHome === undefined ? {} : { DATABASE_URL: databaseUrl(databaseHome) },
    })
    this.#engines.push(engine)
    await this.untilReady()
    if (this.#api === undefined) await this.#signIn()
  }

  async untilReady(): Promise<void> {
    const engine = this.engine
    await until(
      () => `the engine is ready:\n${engine.tail()}`,
      async () => {
        if (!engine.running) throw new Error(`it ended: ${JSON.stringify(engine.exit)}`)
        return (await fetch(`${this.url}/ready`)).ok
      },
      60_000,
    )
  }

  /** One figure of /metrics: `clutch_sessions`, `clutch_placements_total{outcome="waited"}`; 0 while it has none. */
  async metric(name: string): Promise<number> {
    const lines = (await (await fetch(`${this.url}/metrics`)).text()).split('\n')
    const line = lines.find((one) => one.startsWith(`${name} `))
    return line === undefined ? 0 : Number(line.slice(name.length + 1))
  }

  /** Waits until nodes have taken on this many invocations that have not ended. */
  async untilRunning(count: number): Promise<void> {
    await until(`${count} invocations run`, async () =>
      (await this.metric('clutch_invocations_running')) === count ? true : undefined,
    )
  }

  async #signIn(): Promise<void> {
    this.#key = readFileSync(join(this.home, 'secrets/dev-key'), 'utf8').trim()
    this.#api = this.apiAs(this.#key)
    const { orgs } = await this.#api.access.whoami({})
    this.#orgId = orgs[0]!.id
  }

  /** The CLI's client with another credential. */
  apiAs(secret: string, kind: 'api-key' | 'session' = 'api-key'): Api {
    return createApi({
      target: {
        url: this.url,
        credential: { kind, secret, from: 'a test' },
        orgId: undefined,
        sessions: undefined,
      },
      version: 'test',
      clock: systemClock,
      random: systemRandom,
      signal: new AbortController().signal,
    })
  }

  /** A person with an org of their own and its owner key, by the pages' way in; the engine needs `--sign-up open`. */
  async otherOrg(
    slug: string,
  ): Promise<{ api: Api; orgId: string; key: string; signIn: string; password: string }> {
    const password = Buffer.from(systemRandom.bytes(12)).toString('hex')
    const post = async (path: string, body: object, token?: string): Promise<Response> => {
      const response = await fetch(`${this.url}/api/auth${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          origin: this.url,
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        body: JSON.stringify(body),
      })
      assert.ok(response.ok, `${path}: ${response.status} ${await response.clone().text()}`)
      return response
    }
    const email = `${slug}@example.com`
    const signedUp = await post('/sign-up/email', { name: slug, email, password })
    const signIn = signedUp.headers.get('set-auth-token') ?? ''
    assert.notEqual(signIn, '')
    await post('/organization/create', { name: slug, slug }, signIn)
    const person = this.apiAs(signIn, 'session')
    const { orgs } = await person.access.whoami({})
    const orgId = orgs[0]!.id
    const { secret } = await person.access.keys.create({ orgId, name: 'test', role: 'owner' })
    assert.ok(secret)
    return { api: this.apiAs(secret), orgId, key: secret, signIn, password }
  }

  /** SIGKILL; the postmaster lives on. */
  async killEngine(): Promise<void> {
    await this.engine.kill()
  }

  /** A second engine on the same database and keys. Ends with this platform. */
  async secondEngine(): Promise<Platform> {
    const home = stateFolder()
    const other = new Platform({
      home,
      ports: { http: await freePort(), session: await freePort() },
      settings: {
        ...this.#site.settings,
        keyring: join(this.home, 'secrets'),
        blobs: join(this.home, 'blobs'),
      },
      databaseHome: this.home,
    })
    this.#others.push(other)
    other.#key = this.key
    other.#orgId = this.orgId
    other.#api = other.apiAs(this.key)
    await other.startEngine()
    return other
  }

  // ---------------------------------------------------------------- nodes

  async enroll(
    nodeId: string,
    options: EnrollInput = {},
  ): Promise<{ node: NodeRecord; token: string }> {
    const { node, token } = await this.api.compute.nodes.enroll({
      orgId: this.orgId,
      nodeId,
      trustTier: 'secure',
      ...options,
    })
    assert.ok(token, 'enroll gave no token')
    return { node, token }
  }

  /** An agent process; `token` is written into its own folder (ND-3). */
  startAgent(nodeId: string, token: string, options: NodeOptions = {}): Agent {
    const agent = new Agent({ server: this.sessions, nodeId, token, options })
    this.#agents.add(agent)
    return agent
  }

  /** Enrolls, starts an agent, and waits until it may receive work. */
  async startNode(nodeId: string, options: NodeOptions = {}): Promise<Agent> {
    const { flags: _flags, runtimes: _runtimes, ...record } = options
    const { token } = await this.enroll(nodeId, record)
    const agent = this.startAgent(nodeId, token, options)
    await this.untilNode(nodeId, (node) => node.schedulable)
    return agent
  }

  async node(nodeId: string): Promise<NodeRecord> {
    const { node } = await this.api.compute.nodes.get({ orgId: this.orgId, id: nodeId })
    return node
  }

  async untilNode(
    nodeId: string,
    holds: (node: NodeRecord) => boolean,
    withinMs = 30_000,
  ): Promise<NodeRecord> {
    let last: NodeRecord | undefined
    const said = (): string =>
      [...this.#agents]
        .filter((one) => one.nodeId === nodeId)
        .map((one) => one.program.tail(2_000))
        .join('\n')
    return until(
      () => `node ${nodeId}: ${String(holds)}\n${JSON.stringify(last)}\n${said()}`,
      async () => {
        last = await this.node(nodeId)
        return holds(last) ? last : undefined
      },
      withinMs,
    )
  }

  // ---------------------------------------------------------------- functions

  /** `file` under examples/, or the bytes themselves. */
  async deploy(
    name: string,
    file: string | Uint8Array,
    options: DeployInput = {},
  ): Promise<FunctionRecord> {
    const bytes = typeof file === 'string' ? await readFile(join(EXAMPLES, file)) : file
    const { function: record } = await this.api.compute.functions.deploy({
      orgId: this.orgId,
      name,
      component: Buffer.from(bytes).toString('base64'),
      cpuMillis: 250,
      ...options,
    })
    return record
  }

  invoke(name: string, options: InvokeInput = {}): Promise<Invoked> {
    return this.api.compute.functions.invoke({ orgId: this.orgId, name, ...options })
  }

  /** The probe's steps. */
  probe(name: string, args: readonly string[], options: InvokeInput = {}): Promise<Invoked> {
    return this.invoke(name, { args: [...args], ...options })
  }

  // ---------------------------------------------------------------- what must hold

  /** Booked sums are the sums of what is booked; no child of ours waits to be waited for. */
  async assertConsistent(): Promise<void> {
    assert.deepEqual(await slotDrift(this.store), [])
    const running = [this.engine, ...[...this.#agents].map((one) => one.program)]
    const below = running.filter((one) => one.running).flatMap((one) => descendants(one.pid))
    assert.deepEqual(
      below.filter((one) => one.state === 'Z'),
      [],
    )
  }

  /** Stops everything; fails when anything of ours is left. */
  async end(): Promise<void> {
    for (const other of this.#others) await other.end()
    const running = allProcesses()
    const programs = [
      ...[...this.#agents].map((one) => one.program),
      ...this.#engines.filter((one) => one.running),
    ].filter((one) => one.running)
    const left = programs.flatMap((one) => descendants(one.pid, running))
    const postmaster = this.postmaster()
    if (postmaster) left.push(postmaster, ...descendants(postmaster.pid, running))
    const failures: unknown[] = []
    await this.#store?.destroy()
    for (const program of programs)
      await program.stop(EXIT_WITHIN_MS).catch((error: unknown) => failures.push(error))
    try {
      await until(
        () => `our processes are gone:\n${describe(left.filter((one) => !isGone(one)))}`,
        () => left.every(isGone) || undefined,
        GONE_WITHIN_MS,
      )
    } catch (error) {
      failures.push(error)
      for (const one of left) if (!isGone(one)) process.kill(one.pid, 'SIGKILL')
    }
    for (const agent of this.#agents) agent.remove()
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 })
    if (failures.length > 0) throw new AggregateError(failures, 'the platform did not end cleanly')
  }

  /** What `end` would do, without waiting: the kernel ends our programs with us, but not the postmaster. */
  abandon(): void {
    const postmaster = this.postmaster()
    if (postmaster) process.kill(postmaster.pid, 'SIGKILL')
    for (const agent of this.#agents) agent.remove()
    for (const folder of [...this.#others.map((one) => one.home), this.home])
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }

  /** The embedded Postgres, while it runs. */
  postmaster(): Proc | undefined {
    try {
      const path = join(this.home, 'postgres/18/postmaster.pid')
      const found = processAt(Number(readFileSync(path, 'utf8').split('\n')[0]))
      return found?.command.includes(this.home) === true ? found : undefined
    } catch {
      return undefined
    }
  }
}

type AgentSpec = { server: string; nodeId: string; token: string; options: NodeOptions }

/** One machine that dials out: its data folder, and the agent process that runs on it. */
export class Agent {
  readonly #spec: AgentSpec
  readonly #programs: Program[] = []
  readonly dataDir: string

  constructor(spec: AgentSpec) {
    this.#spec = spec
    this.dataDir = mkdtempSync(join(tmpdir(), 'clutch-e2e-node-'))
    this.setToken(spec.token)
    this.start()
  }

  get nodeId(): string {
    return this.#spec.nodeId
  }

  get #tokenFile(): string {
    return `${this.dataDir}.token`
  }

  setToken(token: string): void {
    writeFileSync(this.#tokenFile, token, { mode: 0o600 })
  }

  /** `server`: another engine than before. */
  start(server = this.#spec.server): void {
    const { nodeId, options } = this.#spec
    const args = ['--server', server, '--node', nodeId, '--token-file', this.#tokenFile]
    args.push('--runtimes', options.runtimes ?? 'wasm', '--data-dir', this.dataDir)
    this.#programs.push(
      new Program({ name: 'clutch-noded', args: [...args, ...(options.flags ?? [])] }),
    )
  }

  /** The process that runs, or ran last. */
  get program(): Program {
    return this.#programs.at(-1)!
  }

  get log(): string {
    return this.#programs.map((one) => one.output).join('')
  }

  /** Everything below the agent's process. */
  children(): Proc[] {
    return descendants(this.program.pid)
  }

  remove(): void {
    rmSync(this.dataDir, { recursive: true, force: true })
    rmSync(this.#tokenFile, { force: true })
  }
}

export const describe = (processes: readonly Proc[]): string =>
  processes.map((one) => `${one.pid} ${one.state} ${one.command.slice(0, 160)}`).join('\n')

/** What a refused call said. */
export async function refusal(
  call: Promise<unknown>,
): Promise<{ code: string; reason: unknown; message: string }> {
  try {
    await call
  } catch (error) {
    const { code, message, details } = error as Error & {
      code: string
      details?: { reason?: unknown }
    }
    return { code, reason: details?.reason, message }
  }
  assert.fail('the call was not refused')
}

// Simulated nodes: plain clients of the real protocol that answer work without doing it (003-02). A thousand fit in one
// process; the platform behaves towards them as towards real ones.
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'
import { parseAs } from '#protocol/codec.ts'
import { parseToken } from '#protocol/enroll-token.ts'
import type { FramedStream } from '#protocol/framed-stream.ts'
import { createIdentity, type Identity } from '#protocol/identity.ts'
import {
  ToInvocation,
  type FromInvocation,
  type FromNode,
  type Manifest,
  type StreamHeader,
  type Welcome,
} from '#protocol/messages.ts'
import type { Transport } from '#protocol/pipe.ts'
import { Session, type Link, type SessionHost } from '#session/session.ts'
import { Supervisor, type Ended } from '#session/supervisor.ts'
import type { Outcome } from '#session/outcome.ts'

export type SimNodeSpec = {
  nodeId: string
  token: string
  manifest?: Partial<Manifest>
  community?: boolean
  /** What acceptance answers; a pass unless given. */
  check?: { ok: boolean; output: string } | 'silent'
  /** Called with each command, before its answer. */
  onCommand?: (() => void) | undefined
  /** Answers an invocation after its stdin ended; exit 0 and its own name unless given. */
  answer?(header: StreamHeader, stdin: Uint8Array): FromInvocation[]
}

export type SimNodesOptions = {
  server: { host: string; port: number }
  clock: Clock
  random: Random
  transports?: readonly Transport[]
}

const MANIFEST: Manifest = { cpuMillis: 8_000, memMb: 16_384, runtimes: ['wasm'] }

export class SimNode {
  readonly spec: SimNodeSpec
  readonly #options: SimNodesOptions
  readonly #identity: Identity
  readonly #supervisor: Supervisor
  readonly done: Promise<Ended>
  /** Resolves at the first welcome. */
  readonly welcomed: Promise<void>
  #onWelcome: () => void = () => {}
  welcome: Welcome | undefined
  link: Link | undefined
  /** Ends of sessions that were followed by another dial. */
  readonly ends: Outcome[] = []
  /** Ids of the commands that it was given. */
  readonly commands: string[] = []
  #generation = 0

  constructor(spec: SimNodeSpec, identity: Identity, options: SimNodesOptions) {
    this.spec = spec
    this.#options = options
    this.#identity = identity
    this.#supervisor = new Supervisor({
      clock: options.clock,
      random: options.random,
      attempt: (ways) => this.#attempt(ways),
      onRetry: (outcome) => void this.ends.push(outcome),
    })
    this.welcomed = new Promise((resolve) => (this.#onWelcome = resolve))
    this.done = this.#supervisor.run()
  }

  get connected(): boolean {
    return this.#supervisor.session?.serving === true
  }

  /** Says anything that a node may say. */
  send(message: FromNode): void {
    this.#supervisor.session?.send(message)
  }

  /** Says that it leaves; what runs may end. */
  leave(): void {
    this.#supervisor.leave()
  }

  async stop(): Promise<void> {
    this.#supervisor.leave()
    this.#supervisor.close()
    await this.done
  }

  #attempt(ways: readonly Transport[] | undefined): Session {
    const { server, clock, random, transports = ways } = this.#options
    return new Session({
      server,
      clock,
      random,
      identity: this.#identity,
      host: this.#host(),
      ...(transports === undefined ? {} : { transports }),
    })
  }

  #host(): SessionHost {
    const { nodeId, token, manifest, community = false, check } = this.spec
    return {
      register: () => ({
        agentVersion: 'sim',
        nodeId,
        ...this.#proof(),
        manifest: { ...MANIFEST, ...manifest },
        community,
        jailer: false,
      }),
      pin: () =>
        this.welcome
          ? { publicKey: Buffer.from(this.welcome.fleetRoot).toString('hex') }
          : { fingerprint: parseToken(token).fingerprint },
      certificatePem: () => undefined,
      welcomed: (welcome, link) => {
        this.welcome = welcome
        this.link = link
        this.#onWelcome()
      },
      desired: (generation) => {
        this.#generation = generation
        if (generation > 0) this.#supervisor.session?.send({ t: 'observed', generation })
      },
      command: ({ id }) => {
        this.commands.push(id)
        this.spec.onCommand?.()
        if (check === 'silent') return
        const result = check ?? { ok: true, output: 'simulated' }
        this.#supervisor.session?.send({ t: 'command-result', id, ...result })
      },
      cancel: () => undefined,
      renewed: (certificate) => {
        if (this.welcome) this.welcome = { ...this.welcome, certificate }
      },
      stream: (header, stream) => {
        this.#serve(header, stream).catch(() => stream.destroy())
      },
    }
  }

  #proof(): Pick<
    ReturnType<SessionHost['register']>,
    'token' | 'orgId' | 'certificate' | 'identityGeneration' | 'epochSeen' | 'generationSeen'
  > {
    const { welcome } = this
    if (!welcome)
      return {
        token: this.spec.token,
        identityGeneration: 0,
        epochSeen: 0,
        generationSeen: 0,
      }
    return {
      orgId: welcome.node.orgId,
      certificate: welcome.certificate,
      identityGeneration: welcome.identityGeneration,
      epochSeen: welcome.epoch,
      generationSeen: this.#generation,
    }
  }

  async #serve(header: StreamHeader, stream: FramedStream): Promise<void> {
    const began = this.#options.clock.monotonic()
    await stream.write({ t: 'artifact', have: true } satisfies FromInvocation)
    const stdin: Uint8Array[] = header.stdin === undefined ? [] : [header.stdin]
    while (header.stdin === undefined) {
      const message = parseAs(ToInvocation, await stream.read(), 'message of an invocation')
      if (message.t === 'stdin-end') break
      if (message.t === 'stdin') stdin.push(message.bytes)
    }
    const said = this.spec.answer?.(header, Buffer.concat(stdin)) ?? [
      { t: 'stdout', bytes: Buffer.from(`${this.spec.nodeId}\n`) },
      {
        t: 'result',
        outcome: { kind: 'exited', exitCode: 0 },
        durationMs: this.#options.clock.monotonic() - began,
        memPeakMb: 1,
        stdoutTruncated: false,
        stderrTruncated: false,
      },
    ]
    for (const message of said) await stream.write(message)
    stream.end()
  }
}

/** How many dial at once: a whole fleet at once is what an engine meets after a restart, and slower for all. */
const DIALS_AT_ONCE = 32

/** A node a spec, each with a key of its own. Resolves when each has been welcomed or has ended. */
export async function startSimNodes(
  specs: readonly SimNodeSpec[],
  options: SimNodesOptions,
): Promise<SimNode[]> {
  const nodes: SimNode[] = []
  const waiting = [...specs]
  const worker = async (): Promise<void> => {
    for (let spec = waiting.shift(); spec; spec = waiting.shift()) {
      const node = new SimNode(spec, await createIdentity(options.random), options)
      nodes.push(node)
      await Promise.race([node.welcomed, node.done])
    }
  }
  await Promise.all(Array.from({ length: DIALS_AT_ONCE }, worker))
  return nodes
}

export async function stopSimNodes(nodes: readonly SimNode[]): Promise<void> {
  await Promise.all(nodes.map((node) => node.stop()))
}

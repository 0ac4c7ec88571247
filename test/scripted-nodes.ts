// Nodes as the engine's functions see them: sessions and `invoke` streams that speak the real framed messages, answered
// by a script of the test. The gateway and everything beyond it is the far side.
import { createHash } from 'node:crypto'
import { duplexPair, type Duplex } from 'node:stream'
import type { Gateway } from '#engine/gateway/gateway.ts'
import { AppError } from '#lib/error.ts'
import { parseAs } from '#protocol/codec.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import {
  type FromInvocation,
  type InvokeHeader,
  type Outcome,
  type StreamHeader,
  ToInvocation,
} from '#protocol/messages.ts'

/** One `invoke` stream from the node's end. */
export class Invocation {
  readonly nodeRecordId: string
  readonly header: InvokeHeader
  readonly stream: FramedStream
  stdin: Buffer = Buffer.alloc(0)

  constructor(nodeRecordId: string, header: InvokeHeader, far: Duplex) {
    this.nodeRecordId = nodeRecordId
    this.header = header
    this.stream = new FramedStream(far)
  }

  /** Says whether the artifact is there, takes and checks it if not, then all of stdin. */
  async start(have: boolean): Promise<void> {
    await this.say({ t: 'artifact', have })
    const { bytes, sha256 } = this.header.artifact
    const hash = createHash('sha256')
    let left = have ? 0 : bytes
    while (left > 0) {
      const message = await this.hear()
      if (message.t !== 'artifact') throw new Error(`artifact wanted, ${message.t} heard`)
      hash.update(message.bytes)
      left -= message.bytes.length
    }
    if (!have && hash.digest('hex') !== sha256) throw new Error('these are other bytes')
    if (this.header.stdin !== undefined) {
      this.stdin = Buffer.from(this.header.stdin)
      return
    }
    for (let message = await this.hear(); message.t !== 'stdin-end'; message = await this.hear())
      if (message.t === 'stdin') this.stdin = Buffer.concat([this.stdin, message.bytes])
      else throw new Error(`stdin wanted, ${message.t} heard`)
  }

  say(message: FromInvocation): Promise<void> {
    return this.stream.write(message)
  }

  stdout(text: string | Uint8Array): Promise<void> {
    return this.say({ t: 'stdout', bytes: Uint8Array.from(Buffer.from(text)) })
  }

  result(outcome: Outcome, durationMs = 1): Promise<void> {
    const cut = { stdoutTruncated: false, stderrTruncated: false }
    return this.say({ t: 'result', outcome, durationMs, memPeakMb: 1.5, ...cut })
  }

  async hear(): Promise<ToInvocation> {
    const raw = await this.stream.read()
    if (raw === undefined) throw new Error('the engine ended the stream')
    return parseAs(ToInvocation, raw, 'the test')
  }

  /** Resolves when the engine closed the stream. */
  closed(): Promise<void> {
    const { stream } = this.stream
    stream.resume()
    return new Promise((resolve) => {
      if (stream.destroyed || stream.readableEnded) return resolve()
      stream
        .on('close', resolve)
        .on('end', resolve)
        .on('error', () => resolve())
    })
  }
}

export type Script = (invocation: Invocation) => Promise<void>

/** Echoes stdin and exits 0. */
export const echo: Script = async (invocation) => {
  await invocation.start(false)
  if (invocation.stdin.length > 0) await invocation.stdout(invocation.stdin)
  await invocation.result({ kind: 'exited', exitCode: 0 })
}

export class ScriptedNodes implements Gateway {
  readonly #sessions = new Map<string, { epoch: number }>()
  readonly #listeners = new Set<(nodeRecordId: string) => void>()
  readonly #open = new Map<string, Set<Duplex>>()
  /** What a node does with an invocation; `echo` unless set. */
  readonly scripts = new Map<string, Script>()
  /** Streams in the order they were opened. */
  readonly opened: Invocation[] = []
  refuseStreams = new Set<string>()

  connect(nodeRecordId: string): void {
    const epoch = (this.#sessions.get(nodeRecordId)?.epoch ?? 0) + 1
    this.#sessions.set(nodeRecordId, { epoch })
    this.#tell(nodeRecordId)
  }

  /** The session ends, and every stream with it. */
  lose(nodeRecordId: string): void {
    this.#sessions.delete(nodeRecordId)
    for (const near of this.#open.get(nodeRecordId) ?? []) near.destroy(gone('MUX_CLOSED'))
    this.#open.delete(nodeRecordId)
    this.#tell(nodeRecordId)
  }

  session(nodeRecordId: string) {
    const found = this.#sessions.get(nodeRecordId)
    return found && { nodeRecordId, orgId: '', epoch: found.epoch, transport: 'tls' as const }
  }

  async openStream(nodeRecordId: string, header: StreamHeader): Promise<Duplex> {
    if (!this.#sessions.has(nodeRecordId) || this.refuseStreams.has(nodeRecordId))
      throw gone('NODE_LOST')
    const [near, far] = duplexPair()
    for (const end of [near, far]) end.on('error', () => undefined)
    const open = this.#open.get(nodeRecordId) ?? new Set()
    this.#open.set(nodeRecordId, open.add(near))
    near.once('close', () => {
      open.delete(near)
      far.destroy()
    })
    const invocation = new Invocation(nodeRecordId, header, far)
    this.opened.push(invocation)
    const script = this.scripts.get(nodeRecordId) ?? echo
    // A script that cannot go on is a node that dies: the engine sees its stream end.
    script(invocation).then(
      () => far.end(),
      () => far.destroy(),
    )
    return near
  }

  /** Streams that are open now. */
  openStreams(): number {
    return [...this.#open.values()].reduce((sum, set) => sum + set.size, 0)
  }

  endSession(nodeRecordId: string): void {
    this.lose(nodeRecordId)
  }

  onChange(fn: (nodeRecordId: string) => void): () => void {
    this.#listeners.add(fn)
    return () => void this.#listeners.delete(fn)
  }

  sessions(): number {
    return this.#sessions.size
  }

  #tell(nodeRecordId: string): void {
    for (const fn of this.#listeners) fn(nodeRecordId)
  }
}

const gone = (reason: string): AppError =>
  new AppError('UNAVAILABLE', 'the session is gone', { details: { reason } })

// One invocation on one node: the engine's end of an `invoke` stream.
// 1. The node enforces the caps; the engine enforces them again, with a margin, because a node can lie or hang.
// 2. Output beyond the caps is read and dropped: the guest runs on, and its stream never stalls.
// 3. The stream is closed on every way out; closing it early is how the node hears that nobody waits any more.
//    No way takes longer than the invocation's time and TAKE_MAX_MS, whatever the node or the caller does not do.
// 4. `acted` is false only while the guest cannot have begun, or has shown nothing: such a run may be done elsewhere. A
//    guest has no network and no files, so its output is all that the world can see of it.
// 5. `seen` is true once a piece of a streamed stdin was asked for, or a piece of stdout given on: what went in or out
//    cannot be had back, so such a run is done nowhere else.
import type { Duplex, Readable } from 'node:stream'
import type { End } from '#core/function/answer.ts'
import { MEM_MB, STDERR_MAX, STDOUT_MAX } from '#core/function/limits.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { parseAs } from '#protocol/codec.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import { FromInvocation, type InvokeHeader } from '#protocol/messages.ts'
import { Kept } from '#engine/functions/kept.ts'
import type { Gateway } from '#engine/gateway/gateway.ts'
import type { Metrics } from '#engine/metrics.ts'

/** A message of an artifact or of stdin: well below the largest message, big enough for the disk and the pipe. */
const CHUNK = 64 * 1024
/** How long a node may take to accept the stream and to say whether it has the artifact. */
const ANSWER_MS = 15_000
/** How long one chunk may wait for room: a slow line takes 64 KiB in far less. */
const CHUNK_STALLED_MS = 30_000
/** Beyond the invocation's own time: a cold child on a busy node, and the way back. */
const RESULT_MARGIN_MS = 15_000
/** What the caller's slowness adds to that at most: the guest is dead by then, and its unit is wanted. */
const TAKE_MAX_MS = 60_000

/** POSIX: the rest of the number is lost on the way out of a process. */
const EXIT_CODE_MAX = 255

export type RunSpec = {
  nodeRecordId: string
  nodeName: string
  header: InvokeHeader
  stdin: Uint8Array | AsyncIterable<Uint8Array>
  /** Takes stdout as it comes; nothing more is read of the node before it has. */
  onStdout: ((bytes: Uint8Array) => void | Promise<void>) | undefined
  /** Opens the artifact's bytes; called only if the node lacks them. */
  artifact(): Promise<Readable>
  signal: AbortSignal
}

export type Run = {
  end: End
  acted: boolean
  seen: boolean
  /** Whether the node held the artifact already; undefined when it never said. */
  had: boolean | undefined
  durationMs: number
  memPeakMb: number | null
  fuelUsed: number | null
  stdout: Uint8Array
  stderr: Uint8Array
  /** Kept or given on. */
  stdoutBytes: number
  stdoutTruncated: boolean
  stderrTruncated: boolean
}

type RunDeps = { gateway: Gateway; clock: Clock; metrics: Metrics }

/** Never rejects for what a node does; rejects when the engine lacks the artifact itself. */
export async function runOnNode(deps: RunDeps, spec: RunSpec): Promise<Run> {
  const run = new StreamRun(deps, spec)
  try {
    return await run.run()
  } finally {
    run.close()
  }
}

/** ToInvocation, for bytes of any owner. */
type Said = { t: 'artifact' | 'stdin'; bytes: Uint8Array } | { t: 'stdin-end' }
type Result = Extract<FromInvocation, { t: 'result' }>

class StreamRun {
  readonly #gateway: Gateway
  readonly #clock: Clock
  readonly #metrics: Metrics
  readonly #spec: RunSpec
  readonly #began: number
  readonly #stdout = new Kept(STDOUT_MAX)
  readonly #stderr = new Kept(STDERR_MAX)
  #framed: FramedStream | undefined
  #stopTimer: () => void = () => undefined
  /** Why we closed the stream ourselves. */
  #closed: End | undefined
  /** The engine cannot go on: not the node's doing. */
  #broken: Error | undefined
  #had: boolean | undefined
  #handed = false
  #seen = false
  #givenBytes = 0
  #stdin: AsyncIterator<Uint8Array> | undefined
  /** When the node must have ended the invocation; monotonic. It moves on while the caller takes no output. */
  #deadline = Infinity
  /** How far it moves at most. */
  #deadlineMax = Infinity
  /** Whether the caller has a piece of output that it did not take yet. */
  #taking = false
  #over = false
  #onCut: () => void = () => undefined

  constructor(deps: RunDeps, spec: RunSpec) {
    this.#gateway = deps.gateway
    this.#clock = deps.clock
    this.#metrics = deps.metrics
    this.#spec = spec
    this.#began = deps.clock.monotonic()
  }

  async run(): Promise<Run> {
    const { signal } = this.#spec
    const onAbort = (): void => this.#cut({ kind: 'cancelled' })
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      if (signal.aborted) return this.#ended({ kind: 'cancelled' })
      this.#within(ANSWER_MS, 'did not answer')
      this.#framed = new FramedStream(await this.#open())
      // Nothing more is needed of us: it may begin before it says a word.
      this.#handed = this.#spec.header.stdin !== undefined
      const result = await this.#converse(this.#framed)
      return this.#ended(this.#believed(result.outcome), result)
    } catch (error) {
      if (this.#broken !== undefined) throw this.#broken
      return this.#ended(this.#closed ?? this.#told(error))
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  close(): void {
    this.#over = true
    this.#stopTimer()
    this.#framed?.destroy()
    // The caller's source may be waiting for more.
    this.#stdin?.return?.().catch(() => undefined)
    if (this.#had !== undefined) this.#metrics.invocationsRunning.dec()
  }

  /** A stream that arrives after we gave up is closed at once. */
  async #open(): Promise<Awaited<ReturnType<Gateway['openStream']>>> {
    const opening = this.#gateway.openStream(this.#spec.nodeRecordId, this.#spec.header)
    opening.then(
      (stream) => void (this.#closed && stream.destroy()),
      () => undefined,
    )
    return this.#unlessCut(opening)
  }

  /** Rejects when we give up meanwhile. */
  async #unlessCut<T>(work: Promise<T>): Promise<T> {
    const gaveUp = Promise.withResolvers<never>()
    this.#onCut = () => gaveUp.reject(new Error('gave up'))
    if (this.#closed) this.#onCut()
    try {
      return await Promise.race([work, gaveUp.promise])
    } finally {
      this.#onCut = () => undefined
    }
  }

  #cut(why: End): void {
    this.#closed ??= why
    this.#onCut()
    this.#framed?.destroy()
  }

  #within(ms: number, what: string): void {
    this.#stopTimer()
    if (this.#over) return
    const message = `node ${this.#spec.nodeName} ${what} within ${Math.round(ms / 1000)} s`
    this.#stopTimer = this.#clock.after(ms, () => this.#cut({ kind: 'fault', message }))
  }

  async #converse(framed: FramedStream): Promise<Result> {
    let first = true
    for (;;) {
      const raw = await framed.read()
      if (raw === undefined) throw new Error('the stream ended without a result')
      const message = parseAs(FromInvocation, raw, 'an invocation')
      if (message.t === 'result') return message
      if (message.t === 'artifact' && first) {
        this.#had = message.have
        this.#metrics.invocationsRunning.inc()
        // The node may end while we still send: what it says decides, not that our writing failed.
        this.#feed(framed, message.have).catch(() => undefined)
      } else if (message.t === 'stdout' && !first) await this.#give(framed, message.bytes)
      else if (message.t === 'stderr' && !first) this.#stderr.add(message.bytes)
      else throw new Error(`the node said ${message.t} out of turn`)
      first = false
    }
  }

  /**
   * Without a taker it is kept. A taker holds the node back, and the time that it takes is not the node's; but it has no
   * more of it than TAKE_MAX_MS, and none once the node is gone.
   */
  async #give(framed: FramedStream, bytes: Uint8Array): Promise<void> {
    const { onStdout } = this.#spec
    if (!onStdout) return this.#stdout.add(bytes)
    this.#seen = true
    this.#givenBytes += bytes.length
    const taken = this.#fromCaller(() => onStdout(bytes))
    if (taken === undefined) return
    const since = this.#clock.monotonic()
    this.#taking = true
    this.#untilDeadline()
    await this.#unlessCut(unlessClosed(framed.stream, taken))
    this.#taking = false
    const waited = this.#clock.monotonic() - since
    this.#deadline = Math.min(this.#deadline + waited, this.#deadlineMax)
    this.#untilDeadline()
  }

  #fromCaller<T>(run: () => T): T {
    try {
      const result = run()
      if (result instanceof Promise) result.catch(() => this.#cut({ kind: 'cancelled' }))
      return result
    } catch (error) {
      this.#cut({ kind: 'cancelled' })
      throw error
    }
  }

  #untilDeadline(): void {
    if (this.#deadline === Infinity) return
    const until = this.#taking ? this.#deadlineMax : this.#deadline
    const left = Math.max(0, until - this.#clock.monotonic())
    if (!this.#taking) return this.#within(left, 'did not end the invocation')
    const message = 'its time was over, and the caller did not take its output'
    this.#stopTimer()
    this.#stopTimer = this.#clock.after(left, () => this.#cut({ kind: 'timeout', message }))
  }

  async #feed(framed: FramedStream, have: boolean): Promise<void> {
    if (!have) await this.#sendArtifact(framed)
    this.#handed = true
    const { header, stdin } = this.#spec
    this.#deadline = this.#clock.monotonic() + header.timeoutMs + RESULT_MARGIN_MS
    this.#deadlineMax = this.#deadline + TAKE_MAX_MS
    this.#untilDeadline()
    if (header.stdin !== undefined) return
    if (stdin instanceof Uint8Array) await this.#sayStdin(framed, stdin)
    else await this.#pump(framed, stdin)
    await this.#say(framed, { t: 'stdin-end' })
  }

  async #sayStdin(framed: FramedStream, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += CHUNK)
      await this.#say(framed, { t: 'stdin', bytes: bytes.subarray(at, at + CHUNK) })
  }

  /** What the caller sends, as the node takes it. */
  async #pump(framed: FramedStream, source: AsyncIterable<Uint8Array>): Promise<void> {
    this.#seen = true
    const stdin = source[Symbol.asyncIterator]()
    this.#stdin = stdin
    for (;;) {
      const next = await this.#fromCaller(() => stdin.next())
      if (next.done === true || this.#over) break
      await this.#sayStdin(framed, next.value)
    }
    this.#stdin = undefined
  }

  async #sendArtifact(framed: FramedStream): Promise<void> {
    let source: Readable
    try {
      source = await this.#spec.artifact()
    } catch (error) {
      this.#broken = toError(error)
      framed.destroy()
      return
    }
    try {
      for await (const piece of source) {
        const bytes: Uint8Array = piece
        for (let at = 0; at < bytes.length; at += CHUNK) {
          this.#within(CHUNK_STALLED_MS, 'took no more of the artifact')
          await this.#say(framed, { t: 'artifact', bytes: bytes.subarray(at, at + CHUNK) })
        }
      }
    } catch (error) {
      // The disk failed us, or the stream is over; in the second case the reader knows more.
      if (source.errored) this.#broken = source.errored
      framed.destroy()
      throw error
    } finally {
      source.destroy()
    }
  }

  #say(framed: FramedStream, message: Said): Promise<void> {
    return framed.write(message)
  }

  /** What the end of the stream means when we did not close it. */
  #told(error: unknown): End {
    const { nodeName } = this.#spec
    const away = error instanceof AppError && error.code === 'UNAVAILABLE'
    if (!away || error.details.reason === 'STREAM_RESET')
      return { kind: 'fault', message: `node ${nodeName}: ${messageOf(error)}` }
    const when = this.#handed ? 'during the invocation' : 'before the invocation began'
    return { kind: 'node-lost', message: `node ${nodeName} went away ${when}` }
  }

  #ended(end: End, result?: Result): Run {
    const elapsed = this.#clock.monotonic() - this.#began
    const silent = this.#stdout.empty && this.#stderr.empty && !this.#seen
    const ranHere = end.kind === 'fault' && result !== undefined ? !silent : this.#handed
    return {
      end,
      acted: ranHere,
      seen: this.#seen,
      had: this.#had,
      durationMs: result ? Math.min(result.durationMs, elapsed) : elapsed,
      memPeakMb: memPeakOf(result),
      fuelUsed: result?.fuelUsed ?? null,
      stdout: this.#stdout.all(),
      stdoutBytes: this.#givenBytes + this.#stdout.all().length,
      stderr: this.#stderr.all(),
      stdoutTruncated: this.#stdout.truncated || result?.stdoutTruncated === true,
      stderrTruncated: this.#stderr.truncated || result?.stderrTruncated === true,
    }
  }

  /** What a sound node cannot report is its own failure. */
  #believed(end: End): End {
    const { nodeName } = this.#spec
    if (end.kind === 'exited' && end.exitCode > EXIT_CODE_MAX)
      return { kind: 'fault', message: `node ${nodeName} reports the exit code ${end.exitCode}` }
    // Nobody asked it to: it is going down.
    if (end.kind === 'cancelled')
      return { kind: 'node-lost', message: `node ${nodeName} stopped the invocation` }
    return end
  }
}

/** Rejects when the stream is over before the work is: what it still held is lost with it. */
async function unlessClosed(stream: Duplex, work: Promise<void>): Promise<void> {
  const closed = Promise.withResolvers<never>()
  const onClose = (): void => closed.reject(stream.errored ?? streamClosed())
  if (stream.destroyed) onClose()
  stream.once('close', onClose)
  try {
    await Promise.race([work, closed.promise])
  } finally {
    stream.off('close', onClose)
  }
}

const streamClosed = (): AppError =>
  new AppError('UNAVAILABLE', 'the stream was closed', { details: { reason: 'STREAM_CLOSED' } })

const toError = (error: unknown): Error =>
  error instanceof Error ? error : new Error(messageOf(error))

/** No guest holds more than its cap, whatever a node says. */
function memPeakOf(result: Result | undefined): number | null {
  const said = result?.memPeakMb ?? null
  return said === null ? null : Math.min(said, MEM_MB.max)
}

// The node's end of an `invoke` stream (messages.ts): has it or needs it, the bytes, stdin, the run, the result.
//
// Invariants
// 1. One result is said, last, unless the stream ended first: then the run is cancelled and nobody hears of it.
// 2. What fails on this node is a `fault`, never told as the guest's doing.
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { parseAs } from '#protocol/codec.ts'
import type { FramedStream } from '#protocol/framed-stream.ts'
import {
  ToInvocation,
  type FromInvocation,
  type InvokeHeader,
  type Outcome,
} from '#protocol/messages.ts'
import type { RunOutcome } from '#wasm/outcome.ts'
import type { Runner } from '#wasm/runner.ts'
import type { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'
import type { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

/** Stdin that arrives before the run begins and is no longer than this goes to the guest in one piece. */
const STDIN_WHOLE_MAX = 256 * 1024
/** How long the next piece of stdin is waited for before the guest starts without it. */
const STDIN_SOON_MS = 5
/** How long another transfer of the same artifact is waited for; the engine waits a little longer for our word. */
const ARRIVAL_WAIT_MS = 10_000
/** How long a small piece of output waits for company. */
const GATHERED_MS = 1
const GATHERED_BYTES_MAX = 16 * 1024
const TRAP_CHARS_MAX = 16 * 1024
const REASON_CHARS_MAX = 1024

export type InvocationDeps = { clock: Clock; cache: ArtifactCache; pool: RunnerPool }

export async function serveInvocation(
  deps: InvocationDeps,
  header: InvokeHeader,
  stream: FramedStream,
): Promise<void> {
  const invocation = new Invocation(deps, header, stream)
  await invocation.serve()
}

type Ran = Extract<FromInvocation, { t: 'result' }>

class Invocation {
  readonly #deps: InvocationDeps
  readonly #header: InvokeHeader
  readonly #stream: FramedStream
  readonly #gone = new AbortController()
  #drained: Promise<void> | undefined
  /** Set while what is said waits for more of it. */
  #uncork: Cancel | undefined
  #over = false

  constructor(deps: InvocationDeps, header: InvokeHeader, stream: FramedStream) {
    this.#deps = deps
    this.#header = header
    this.#stream = stream
    stream.stream.on('close', () => {
      if (!this.#over) this.#gone.abort(new Error('the caller is gone'))
    })
  }

  async serve(): Promise<void> {
    let result: Ran
    try {
      await this.#haveArtifact()
      result = await this.#run()
    } catch (error) {
      result = fault(messageOf(error))
    }
    this.#over = true
    this.#uncork?.()
    try {
      await this.#say(result)
      await this.#end()
    } catch {
      this.#stream.destroy()
    }
  }

  /** Resolves when the result has left, or the stream is over: an agent that stops waits for it. */
  #end(): Promise<void> {
    const { stream } = this.#stream
    return new Promise((resolve) => {
      stream.once('finish', resolve).once('close', resolve)
      this.#stream.end()
      if (stream.destroyed) resolve()
    })
  }

  async #haveArtifact(): Promise<void> {
    const { cache, clock } = this.#deps
    const { artifact } = this.#header
    const until = clock.monotonic() + ARRIVAL_WAIT_MS
    for (let arriving; (arriving = cache.arriving(artifact.sha256));) {
      const left = until - clock.monotonic()
      if (left <= 0) break
      await within(clock, left, arriving)
    }
    // No waiting between the look and the word: who looks next finds our transfer announced.
    if (cache.has(artifact.sha256)) await this.#say({ t: 'artifact', have: true })
    else await cache.write(artifact, this.#askedFor(artifact.bytes))
  }

  async *#askedFor(total: number): AsyncGenerator<Uint8Array> {
    await this.#say({ t: 'artifact', have: false })
    yield* this.#artifactChunks(total)
  }

  async *#artifactChunks(total: number): AsyncGenerator<Uint8Array> {
    for (let left = total; left > 0;) {
      const message = await this.#hear()
      if (message?.t !== 'artifact')
        throw new AppError('INVALID', `the engine sent ${message?.t ?? 'its end'} in an artifact`)
      left -= message.bytes.length
      yield message.bytes
    }
  }

  async #run(): Promise<Ran> {
    const { functionId, artifact, memMb, cpuMillis } = this.#header
    const { pool } = this.#deps
    const input = this.#readStdin()
    input.catch(() => undefined) // heard below, unless no runner is had
    return pool.with({ functionId, sha256: artifact.sha256, memMb, cpuMillis }, async (runner) =>
      this.#invoke(runner, await input),
    )
  }

  async #invoke(runner: Runner, stdin: Uint8Array | AsyncIterable<Uint8Array>): Promise<Ran> {
    const { args, env, timeoutMs, fuelMax, stdout = 'cut' } = this.#header
    const ran = await runner.invoke({
      args,
      env: Object.fromEntries(env),
      stdin,
      timeoutMs,
      ...(fuelMax === undefined ? {} : { fuelMax }),
      stdout,
      onStdout: (bytes) => {
        const room = this.#output('stdout', bytes)
        // A stdout that is cut is bounded and may wait here; a whole one waits in the guest.
        return stdout === 'whole' ? room : undefined
      },
      onStderr: (bytes) => void this.#output('stderr', bytes),
      signal: this.#gone.signal,
    })
    return resultOf(ran)
  }

  /**
   * Whole, when it is small and there by now or soon; else what came of it, and the rest as it comes: a caller that
   * waits for output before it sends must not wait for ever.
   */
  async #readStdin(): Promise<Uint8Array | AsyncIterable<Uint8Array>> {
    if (this.#header.stdin !== undefined) return this.#header.stdin
    const pieces: Uint8Array[] = []
    let next: Promise<Uint8Array | undefined> | undefined
    for (let size = 0; size <= STDIN_WHOLE_MAX;) {
      next = this.#stdinPiece()
      const piece = await soon(this.#deps.clock, next)
      if (piece === LATE) break
      next = undefined
      if (piece === undefined)
        return pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces)
      size += piece.length
      pieces.push(piece)
    }
    return this.#stdinFrom(pieces, next)
  }

  async *#stdinFrom(
    pieces: readonly Uint8Array[],
    pending: Promise<Uint8Array | undefined> | undefined,
  ): AsyncGenerator<Uint8Array> {
    yield* pieces
    let piece = await (pending ?? this.#stdinPiece())
    while (piece !== undefined) {
      yield piece
      piece = await this.#stdinPiece()
    }
  }

  async #stdinPiece(): Promise<Uint8Array | undefined> {
    const message = await this.#hear()
    if (message?.t === 'stdin') return message.bytes
    if (message?.t === 'stdin-end') return undefined
    throw new AppError('INVALID', `the engine sent ${message?.t ?? 'its end'} in stdin`)
  }

  /** A promise while the line has no room; undefined when it has. */
  #output(t: 'stdout' | 'stderr', bytes: Uint8Array): Promise<void> | undefined {
    this.#gather(bytes.length)
    if (this.#stream.send({ t, bytes } satisfies FromInvocation)) return undefined
    const drained = (this.#drained ??= this.#stream.drained().finally(() => {
      this.#drained = undefined
    }))
    // A lost line is heard by `close` too.
    drained.catch(() => undefined)
    return drained
  }

  /** Small pieces leave together, and the last of them with the result: what a turn on the line costs is not its bytes. */
  #gather(bytes: number): void {
    const { stream } = this.#stream
    if (bytes >= GATHERED_BYTES_MAX) return this.#uncork?.()
    if (this.#uncork !== undefined) return
    stream.cork()
    const cancel = this.#deps.clock.after(GATHERED_MS, () => this.#uncork?.())
    this.#uncork = () => {
      this.#uncork = undefined
      cancel()
      // Within this turn of the loop what follows comes along.
      process.nextTick(() => stream.uncork())
    }
  }

  async #hear(): Promise<ToInvocation | undefined> {
    const raw = await this.#stream.read()
    return raw === undefined ? undefined : parseAs(ToInvocation, raw, 'message of an invocation')
  }

  #say(message: FromInvocation): Promise<void> {
    return this.#stream.write(message)
  }
}

const LATE = Symbol('late')

/** What the promise resolves with, if it does so soon. */
function soon<T>(clock: Clock, promise: Promise<T>): Promise<T | typeof LATE> {
  const { promise: late, resolve } = Promise.withResolvers<typeof LATE>()
  const cancel = clock.after(STDIN_SOON_MS, () => resolve(LATE))
  return Promise.race([promise, late]).finally(cancel)
}

/** Resolves with the promise, or without it after `ms`. */
function within(clock: Clock, ms: number, promise: Promise<void>): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<void>()
  const cancel = clock.after(ms, resolve)
  return Promise.race([promise, late]).finally(cancel)
}

function resultOf(ran: RunOutcome): Ran {
  return {
    t: 'result',
    outcome: outcomeOf(ran),
    durationMs: ran.durationMs,
    memPeakMb: ran.memPeakMb,
    fuelUsed: ran.fuelUsed,
    stdoutTruncated: ran.stdoutTruncated,
    stderrTruncated: ran.stderrTruncated,
  }
}

function outcomeOf(ran: RunOutcome): Outcome {
  if (ran.kind === 'exited') return { kind: 'exited', exitCode: ran.exitCode }
  if (ran.kind === 'cancelled') return { kind: 'cancelled' }
  const max = ran.kind === 'trap' ? TRAP_CHARS_MAX : REASON_CHARS_MAX
  return { kind: ran.kind, message: printable(ran.message, max) }
}

/** Cut to the message's limit; a guest's names may hold a NUL. */
const printable = (text: string, max: number): string =>
  text.slice(0, max).replaceAll('\0', '\uFFFD')

const fault = (message: string): Ran => ({
  t: 'result',
  outcome: { kind: 'fault', message: printable(message, REASON_CHARS_MAX) },
  durationMs: 0,
  memPeakMb: null,
  stdoutTruncated: false,
  stderrTruncated: false,
})

// The node's end of an `invoke` stream (messages.ts): has it or needs it, the bytes, stdin, the run, the result.
//
// Invariants
// 1. One result is said, last, unless the stream ended first: then the run is cancelled and nobody hears of it.
// 2. What fails on this node is a `fault`, never told as the guest's doing.
import type { Clock } from '#lib/clock.ts'
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
import type { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'
import type { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

/** Output travels in messages of this size: the runner hands over up to 1 MiB at once. */
const CHUNK = 64 * 1024
/** Stdin that arrives before the run begins and is no longer than this goes to the guest in one piece. */
const STDIN_WHOLE_MAX = 256 * 1024
/** How long another transfer of the same artifact is waited for; the engine waits a little longer for our word. */
const ARRIVAL_WAIT_MS = 10_000
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

  constructor(deps: InvocationDeps, header: InvokeHeader, stream: FramedStream) {
    this.#deps = deps
    this.#header = header
    this.#stream = stream
    stream.stream.on('close', () => this.#gone.abort(new Error('the caller is gone')))
  }

  async serve(): Promise<void> {
    let result: Ran
    try {
      await this.#haveArtifact()
      result = await this.#run()
    } catch (error) {
      result = fault(messageOf(error))
    }
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
    const { functionId, artifact, memMb, cpuMillis, args, env, timeoutMs } = this.#header
    const { pool } = this.#deps
    const input = this.#readStdin()
    input.catch(() => undefined) // heard below, unless no runner is had
    return pool.with({ functionId, sha256: artifact.sha256, memMb, cpuMillis }, async (runner) => {
      const ran = await runner.invoke({
        args,
        env: Object.fromEntries(env),
        stdin: await input,
        timeoutMs,
        onStdout: (chunk) => this.#output('stdout', chunk),
        onStderr: (chunk) => this.#output('stderr', chunk),
        signal: this.#gone.signal,
      })
      return resultOf(ran)
    })
  }

  /** Whole, when it is small and ends soon; else its first part, and the rest as it comes. */
  async #readStdin(): Promise<Uint8Array | AsyncIterable<Uint8Array>> {
    const pieces: Uint8Array[] = []
    for (let size = 0; size <= STDIN_WHOLE_MAX;) {
      const piece = await this.#stdinPiece()
      if (piece === undefined)
        return pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces)
      size += piece.length
      pieces.push(piece)
    }
    const next = (): Promise<Uint8Array | undefined> => this.#stdinPiece()
    return (async function* () {
      yield* pieces
      for (let piece = await next(); piece !== undefined; piece = await next()) yield piece
    })()
  }

  async #stdinPiece(): Promise<Uint8Array | undefined> {
    const message = await this.#hear()
    if (message?.t === 'stdin') return message.bytes
    if (message?.t === 'stdin-end') return undefined
    throw new AppError('INVALID', `the engine sent ${message?.t ?? 'its end'} in stdin`)
  }

  #output(t: 'stdout' | 'stderr', chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; at += CHUNK)
      // The runner caps the whole, so what waits for a slow line is bounded; a lost line is heard by `close`.
      this.#say({ t, bytes: chunk.subarray(at, at + CHUNK) }).catch(() => undefined)
  }

  async #hear(): Promise<ToInvocation | undefined> {
    const raw = await this.#stream.read()
    return raw === undefined ? undefined : parseAs(ToInvocation, raw, 'message of an invocation')
  }

  #say(message: FromInvocation): Promise<void> {
    return this.#stream.write(message)
  }
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

// A runner: one restricted child bound to one artifact.
// 1. One invocation at a time; each gets a fresh instance.
// 2. The parent holds the clock: at the cap the child is killed, and the runner is dead from then on.
// 3. A guest's doing is an outcome; the runner's own failure is `fault` and never told as the guest's.
import type { Cancel, Clock } from '#lib/clock.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { DOWN, type Frame, type Invoke, invokePayload, UP } from '#wasm/child/frames.ts'
import { readLoaded, readResult } from '#wasm/child/answers.ts'
import { STDERR_BYTES_MAX, STDOUT_BYTES_MAX } from '#wasm/guest/output.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import type { Measured, RunOutcome } from '#wasm/outcome.ts'
import {
  describeEnd,
  endedForMemory,
  RestrictedChild,
  STACK_BYTES,
} from '#wasm/child/restricted-child.ts'

export type RunnerOptions = {
  /** From `prepare`. */
  artifact: Uint8Array
  /** What all memories and tables of the guest may take together, MiB. */
  memMb: number
  /** Path of the Node binary. */
  node: string
  clock: Clock
  /** Without it the child has the bare jail. */
  jail?: Jail
  /** Share and quota of CPU, once it is loaded; without it as much as there is. */
  cpuMillis?: number
}

export type LoadOptions = Pick<RunnerOptions, 'artifact' | 'memMb' | 'cpuMillis'>

export type InvokeSpec = {
  /** After argv[0], which is `program`. */
  args: string[]
  program?: string
  env: Record<string, string>
  stdin: Uint8Array | AsyncIterable<Uint8Array>
  timeoutMs: number
  /** Units of fuel; undefined: as many as the time allows. */
  fuelMax?: number
  /** `cut` (the default): at most 1 MiB in all, the outcome says what was cut. `whole`: all of it. */
  stdout?: 'cut' | 'whole'
  /** Where it returns a promise the guest is held back until that settles; it fails as the caller's leaving. */
  onStdout(chunk: Uint8Array): void | Promise<void>
  /** At most 256 KiB in all. */
  onStderr(chunk: Uint8Array): void
  signal?: AbortSignal
}

/** A child starts in 50 ms and compiles 17 MB in a second; ten times that under load. */
const START_MS_MAX = 20_000

/** Stdin up to this size travels with the invocation; more is sent as the guest asks. */
const STDIN_INLINE_BYTES = 256 * 1024

/** MiB of JavaScript heap: the glue, its handles and what it copies for the host. What needs more ends as `memory`. */
const HEAP_MB = 64

/** Node's own private memory before any guest (measured 575 MB, mostly reserved), its heap, compiled code. */
const OVERHEAD_BYTES = 1024 * 1024 * 1024

/**
 * The kernel's limit is what is booked and this, MiB: Node's file pages (37 MB) are counted for the first process that
 * reads them, though all share them; and the kernel counts a child's page tables and pipes.
 */
export const KERNEL_SLACK_MB = 48
const CHILD_MEM_MB = RUNNER_MEM_MB + KERNEL_SLACK_MB

/** A child needs its pipes and what Node opens for its event loop. */
const FILES_MAX = 32

/** Node has a dozen threads. */
const TASKS_MAX = 64

/** The longest frame is a chunk of output (64 KiB); a result is far below it. */
const FRAME_BYTES_MAX = 128 * 1024

type Ending = { kind: 'timeout' | 'cancelled' | 'fault'; message: string }

type Running = {
  spec: InvokeSpec
  began: number
  left: { stdout: number; stderr: number }
  /** Stdin that did not travel with the invocation. */
  input: AsyncIterator<Uint8Array> | undefined
  /** Promises of `onStdout` that have not settled: the child is not read while there is one. */
  heldBy: number
  ending: Ending | undefined
  settle(outcome: RunOutcome): void
}

const MIB = 1024 * 1024

async function* chunksOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += STDIN_INLINE_BYTES)
    yield bytes.subarray(at, at + STDIN_INLINE_BYTES)
}

const unmeasured = (durationMs: number): Measured => ({
  durationMs,
  memPeakMb: null,
  stdoutTruncated: false,
  stderrTruncated: false,
  fuelUsed: null,
})

export class Runner {
  readonly #child: RestrictedChild
  readonly #clock: Clock
  #running: Running | undefined
  #dead: string | undefined
  #onReady: () => void = () => {}
  #onLoaded: (error: string | undefined) => void = () => {}
  /** Resolves with the reason when the child is gone. */
  readonly ended: Promise<string>

  private constructor({ node, clock, memMb, jail }: Omit<RunnerOptions, 'artifact'>) {
    this.#clock = clock
    this.#child = new RestrictedChild({
      node,
      entry: '#wasm/runner-child.ts',
      ...(jail === undefined ? {} : { jail }),
      share: { memMb: memMb + CHILD_MEM_MB },
      heapMb: HEAP_MB,
      frameBytesMax: FRAME_BYTES_MAX,
      limits: {
        dataBytes: memMb * MIB + OVERHEAD_BYTES,
        stackBytes: STACK_BYTES,
        filesMax: FILES_MAX,
        tasksMax: TASKS_MAX,
      },
      onFrame: (frame) => this.#onFrame(frame),
    })
    this.ended = this.#watch()
  }

  /**
   * A runner that has compiled its artifact. Throws INVALID (BAD_ARTIFACT) for an artifact that does not load,
   * UNAVAILABLE (RUNNER_FAILED) when the child does not start.
   */
  static async start(options: RunnerOptions): Promise<Runner> {
    const runner = new Runner(options)
    await runner.load(options)
    return runner
  }

  /** A child that waits for its artifact: `load` it later. Its memory backstop is that of `memMb`. */
  static async blank(options: Omit<RunnerOptions, 'artifact'>): Promise<Runner> {
    const runner = new Runner(options)
    await runner.#within((done) => (runner.#onReady = done))
    return runner
  }

  /** Binds a blank runner. Once only. */
  async load({ artifact, memMb, cpuMillis }: LoadOptions): Promise<void> {
    this.#child.limit({ memMb: memMb + CHILD_MEM_MB })
    this.#child.sendJson(DOWN.load, { memMb })
    this.#child.send(DOWN.bytes, artifact)
    const error = await this.#within<string | undefined>((done) => (this.#onLoaded = done))
    // Compiling is the runner's own work: the function's share of CPU begins after it.
    if (error === undefined)
      return cpuMillis === undefined ? undefined : this.#child.limit({ cpuMillis })
    await this.close()
    throw new AppError('INVALID', `the artifact does not load: ${error}`, {
      details: { reason: 'BAD_ARTIFACT', next: 'deploy the function again' },
    })
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  /** A dead runner stays dead: start another. */
  get state(): 'idle' | 'busy' | 'dead' {
    if (this.#dead !== undefined) return 'dead'
    return this.#running === undefined ? 'idle' : 'busy'
  }

  /** Runs one invocation. Throws INVALID_STATE when one is under way; everything else is an outcome. */
  async invoke(spec: InvokeSpec): Promise<RunOutcome> {
    if (this.#running !== undefined)
      throw new AppError('INVALID_STATE', 'the runner is busy: it runs one invocation at a time', {
        details: { reason: 'RUNNER_BUSY', next: 'wait for it, or start another runner' },
      })
    if (this.#dead !== undefined)
      return { ...unmeasured(0), kind: 'fault', message: `the runner is dead: ${this.#dead}` }
    if (spec.signal?.aborted === true)
      return { ...unmeasured(0), kind: 'cancelled', message: messageOf(spec.signal.reason) }
    const began = this.#clock.monotonic()
    const timer = this.#clock.after(spec.timeoutMs, () =>
      this.#end({ kind: 'timeout', message: `killed after ${spec.timeoutMs} ms` }),
    )
    const onAbort = (): void =>
      this.#end({ kind: 'cancelled', message: messageOf(spec.signal?.reason) })
    spec.signal?.addEventListener('abort', onAbort, { once: true })
    try {
      return await new Promise<RunOutcome>((settle) => this.#begin({ spec, began, settle }))
    } finally {
      timer()
      spec.signal?.removeEventListener('abort', onAbort)
    }
  }

  /** Ends the child; an invocation under way ends as `cancelled`. Resolves when the process is gone. */
  async close(): Promise<void> {
    if (this.#running !== undefined)
      this.#end({ kind: 'cancelled', message: 'the runner was closed' })
    this.#dead ??= 'closed'
    this.#child.kill()
    await this.ended
  }

  #begin({ spec, began, settle }: Pick<Running, 'spec' | 'began' | 'settle'>): void {
    const { stdin, fuelMax = null } = spec
    const inline = stdin instanceof Uint8Array && stdin.length <= STDIN_INLINE_BYTES
    const rest = stdin instanceof Uint8Array ? chunksOf(stdin) : stdin
    const input = inline ? undefined : rest[Symbol.asyncIterator]()
    const stdoutWhole = spec.stdout === 'whole'
    const left = {
      stdout: stdoutWhole ? Number.POSITIVE_INFINITY : STDOUT_BYTES_MAX,
      stderr: STDERR_BYTES_MAX,
    }
    this.#running = { spec, began, settle, left, input, heldBy: 0, ending: undefined }
    const request: Invoke = {
      args: [spec.program ?? 'function', ...spec.args],
      env: Object.entries(spec.env),
      stdinWhole: inline,
      fuelMax,
      stdoutWhole,
    }
    const payload = invokePayload(request, inline ? stdin : new Uint8Array(0))
    this.#child.send(DOWN.invoke, payload)
  }

  /** Kills the child in mid-invocation; the outcome follows when it is gone. The first reason stands. */
  #end(ending: Ending): void {
    if (this.#running === undefined) return
    this.#running.ending ??= ending
    this.#dead ??= ending.message
    this.#child.kill()
    // A pipe that is not read has no end.
    this.#child.resume()
  }

  #settle(outcome: RunOutcome): void {
    const running = this.#running
    if (running === undefined) return
    this.#running = undefined
    if (running.heldBy > 0) this.#child.resume()
    running.settle(outcome)
    // The source may wait for ever: its end is its own affair.
    running.input?.return?.().then(undefined, () => {})
  }

  #onFrame({ kind, payload }: Frame): void {
    if (kind === UP.ready) return this.#onReady()
    if (kind === UP.loaded) return this.#onLoaded(readLoaded(payload))
    const running = this.#running
    if (running === undefined) throw new Error(`frame ${kind} outside an invocation`)
    if (kind === UP.stdout) return this.#output(running, 'stdout', payload)
    if (kind === UP.stderr) return this.#output(running, 'stderr', payload)
    if (kind === UP.want) return void this.#feed(running)
    if (kind === UP.result) return this.#onResult(running, payload)
    throw new Error(`unknown frame ${kind}`)
  }

  #output(running: Running, to: 'stdout' | 'stderr', chunk: Buffer): void {
    running.left[to] -= chunk.length
    // The child cuts; one that does not is not running our program any more.
    if (running.left[to] < 0) throw new Error(`${to} past its limit`)
    // What it wrote before its time was up is its output; one that was cancelled is heard by nobody.
    if (running.ending !== undefined && running.ending.kind !== 'timeout') return
    if (to === 'stderr') return running.spec.onStderr(chunk)
    const room = running.spec.onStdout(chunk)
    if (room !== undefined && running.ending === undefined) this.#holdBack(running, room)
  }

  /** Does not read the child until there is room: its pipe fills, and the guest waits in its write. */
  #holdBack(running: Running, room: Promise<void>): void {
    running.heldBy++
    this.#child.pause()
    const release = (): void => {
      running.heldBy--
      if (this.#running === running && running.heldBy === 0) this.#child.resume()
    }
    room.then(release, (error: unknown) => {
      if (this.#running === running)
        this.#end({ kind: 'cancelled', message: `stdout failed: ${messageOf(error)}` })
    })
  }

  async #feed(running: Running): Promise<void> {
    try {
      const { input } = running
      let next = await input?.next()
      while (next?.done === false && next.value.length === 0) next = await input?.next()
      if (this.#running !== running) return
      this.#child.send(DOWN.stdin, next?.done === false ? next.value : new Uint8Array(0))
    } catch (error) {
      if (this.#running !== running) return
      this.#end({ kind: 'fault', message: `stdin failed: ${messageOf(error)}` })
    }
  }

  #onResult(running: Running, payload: Buffer): void {
    // A result that crosses the kill: the kill stands, the child is going.
    if (running.ending !== undefined) return
    const result = readResult(payload)
    if (result.last) this.#dead ??= 'the guest exhausted the stack inside a host call'
    const measured: Measured = {
      durationMs: result.durationMs,
      memPeakMb: result.memPeakBytes / MIB,
      stdoutTruncated: result.stdoutTruncated,
      stderrTruncated: result.stderrTruncated,
      fuelUsed: result.fuelUsed,
    }
    this.#settle(
      result.kind === 'exited'
        ? { ...measured, kind: 'exited', exitCode: result.exitCode }
        : { ...measured, kind: result.kind, message: result.message },
    )
  }

  async #watch(): Promise<string> {
    const end = await this.#child.ended
    const why = this.#dead ?? this.#child.violation ?? `its process ended: ${describeEnd(end)}`
    this.#dead = why
    const running = this.#running
    if (running === undefined) return why
    const measured = unmeasured(this.#clock.monotonic() - running.began)
    if (running.ending !== undefined) this.#settle({ ...measured, ...running.ending })
    else if (endedForMemory(end))
      this.#settle({ ...measured, kind: 'memory', message: 'the guest exhausted its process' })
    else this.#settle({ ...measured, kind: 'fault', message: `the runner failed: ${why}` })
    return why
  }

  /** Waits for one frame of the start, for the child's end, or for the deadline, whichever is first. */
  async #within<T = void>(arm: (done: (value: T) => void) => void): Promise<T> {
    let cancel: Cancel = () => {}
    const failed = new Promise<never>((_, reject) => {
      const fail = (why: string): void =>
        reject(
          new AppError('UNAVAILABLE', `the runner did not start: ${why}`, {
            details: {
              reason: 'RUNNER_FAILED',
              next: 'look at the node: memory, prlimit, setpriv',
            },
          }),
        )
      cancel = this.#clock.after(START_MS_MAX, () => fail(`no answer in ${START_MS_MAX} ms`))
      void this.ended.then(fail)
    })
    try {
      return await Promise.race([new Promise<T>((done) => arm(done)), failed])
    } catch (error) {
      await this.close()
      throw error
    } finally {
      cancel()
    }
  }
}

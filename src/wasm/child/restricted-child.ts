// The parent's end of a restricted child: spawned, spoken to in frames, killed, awaited.
// 1. Its environment is empty; its descriptors are its three pipes.
// 2. It cannot outlive this object's process (jail/command.ts), nor this object's `kill`.
import type { ChildProcess } from 'node:child_process'
import { constants } from 'node:os'
import { systemClock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import { BOOTSTRAP, childProgram } from '#wasm/child/program.ts'
import { DOWN, type Frame, frameHeader, frameReader } from '#wasm/child/frames.ts'
import { bareJail } from '#wasm/jail/bare-jail.ts'
import type { Limits } from '#wasm/jail/command.ts'
import type { Jail, Jailed, Share } from '#wasm/jail/jail.ts'

export type ChildOptions = {
  /** Path of the Node binary. */
  node: string
  /** '#wasm/runner-child.ts' */
  entry: string
  limits: Limits
  /** Without it the child has the bare jail. */
  jail?: Jail
  /** What it may take from the start; `limit` changes it. */
  share?: Partial<Share>
  /** MiB of JavaScript heap. */
  heapMb: number
  /** Further Node flags: permissions. */
  flags?: string[]
  /** No frame from the child may be longer. */
  frameBytesMax: number
  onFrame: (frame: Frame) => void
}

/** How it ended, with the end of what it wrote to stderr. */
export type ChildEnd = {
  code: number | null
  signal: string | null
  stderr: string
  /** The kernel ended it for the memory it took. */
  outOfMemory?: boolean
}

/** Frames up to this size are copied into one piece: cheaper than a vectored write. */
const JOINED_BYTES_MAX = 16 * 1024

/** Kept of a child's stderr, for the message of a failure. */
const STDERR_CHARS_MAX = 4096

/** The main thread's stack: guests recurse deeper than Node's 984 KiB; the process limit leaves room above. */
export const STACK_KIB = 7800
export const STACK_BYTES = 16 * 1024 * 1024

export class RestrictedChild {
  readonly #jailed: Jailed
  readonly #process: ChildProcess
  #stderr = ''
  /** Set when the child broke the protocol: it is killed and this says why. */
  #violation: string | undefined
  readonly ended: Promise<ChildEnd>

  constructor(options: ChildOptions) {
    const args = [
      '--permission',
      '--disallow-code-generation-from-strings',
      '--disable-sigusr1',
      '--no-warnings',
      '--expose-gc',
      `--max-old-space-size=${options.heapMb}`,
      `--stack-size=${STACK_KIB}`,
      ...(options.flags ?? []),
      '--input-type=module',
      '-e',
      BOOTSTRAP,
    ]
    const { node, limits, jail = bareJail(systemClock), share = {} } = options
    this.#jailed = jail.spawn({ node, args, limits, share })
    this.#process = this.#jailed.process
    this.#listen(options)
    this.ended = this.#awaitEnd()
    this.send(DOWN.program, childProgram(options.entry))
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  get violation(): string | undefined {
    return this.#violation
  }

  send(kind: number, payload: Uint8Array): void {
    const { stdin } = this.#process
    if (stdin === null || stdin.destroyed) return
    if (payload.length <= JOINED_BYTES_MAX) {
      stdin.write(Buffer.concat([frameHeader(kind, payload.length), payload]))
      return
    }
    stdin.cork()
    stdin.write(frameHeader(kind, payload.length))
    stdin.write(payload)
    stdin.uncork()
  }

  /** Reads no more of what the child says until `resume`; a child that goes on writing waits in its write. */
  pause(): void {
    this.#process.stdout?.pause()
  }

  resume(): void {
    this.#process.stdout?.resume()
  }

  sendJson(kind: number, value: unknown): void {
    this.send(kind, Buffer.from(JSON.stringify(value)))
  }

  /** What it may take from now on. */
  limit(share: Partial<Share>): void {
    this.#jailed.limit(share)
  }

  /** Ends it now; `ended` resolves when it is gone. */
  kill(): void {
    this.#jailed.kill()
  }

  #listen({ frameBytesMax, onFrame }: ChildOptions): void {
    const read = frameReader(frameBytesMax)
    this.#process.stdout?.on('data', (chunk: Buffer) => {
      if (this.#violation !== undefined) return
      try {
        for (const frame of read(chunk)) onFrame(frame)
      } catch (error) {
        this.#violation = messageOf(error)
        this.kill()
      }
    })
    this.#process.stderr?.on('data', (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString('utf8')).slice(-STDERR_CHARS_MAX)
    })
    // Writing to a child that has just ended fails; its end is reported by `ended`.
    this.#process.stdin?.on('error', () => {})
  }

  #awaitEnd(): Promise<ChildEnd> {
    return new Promise((resolve) => {
      this.#process.once('error', (error) =>
        resolve({ code: null, signal: null, stderr: messageOf(error) }),
      )
      this.#process.once('close', (code, signal) =>
        resolve({
          ...howEnded(code, signal),
          stderr: this.#stderr.trim(),
          outOfMemory: this.#jailed.outOfMemory(),
        }),
      )
    })
  }
}

/** bubblewrap tells its child's signal as a shell does: 128 and its number. */
function howEnded(code: number | null, signal: string | null): Pick<ChildEnd, 'code' | 'signal'> {
  const number = code === null ? 0 : code - 128
  const [name] = Object.entries(constants.signals).find(([, value]) => value === number) ?? []
  return name === undefined ? { code, signal } : { code: null, signal: name }
}

/** Whether a child ended for want of memory: the kernel's word, or what V8 said last. */
export const endedForMemory = (end: ChildEnd): boolean =>
  end.outOfMemory === true || /heap out of memory|out of memory|allocation failed/i.test(end.stderr)

/** 'signal SIGKILL', 'code 1: <first line of stderr>'. */
export function describeEnd(end: ChildEnd): string {
  const how = end.signal === null ? `code ${end.code}` : `signal ${end.signal}`
  const lines = end.stderr.split('\n')
  const line = lines.find((one) => /error|fatal|fail/i.test(one)) ?? lines.find((one) => one !== '')
  return line === undefined ? how : `${how}: ${line.trim().slice(0, 300)}`
}

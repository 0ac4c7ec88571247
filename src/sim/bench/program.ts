// One of our programs as a real process: started by its own wrapper in bin/, heard, ended by its pid.
import { type ChildProcess, spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { homedir } from 'node:os'
import { resolve } from 'node:path'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'

const ROOT = resolve(import.meta.dirname, '../../..')
/** What a program says is kept up to here, the newest of it. */
const OUTPUT_CHARS_MAX = 64 * 1024 * 1024

export type Exit = { code: number | null; signal: NodeJS.Signals | null }

export type ProgramSpec = {
  /** A file of bin/: 'clutch-engine'; or the path of another program. */
  name: string
  args?: readonly string[]
  env?: Readonly<Record<string, string>>
}

export class Program {
  readonly #process: ChildProcess
  #output = ''
  #exit: Exit | undefined
  readonly pid: number
  readonly exited: Promise<Exit>

  constructor({ name, args = [], env = {} }: ProgramSpec) {
    // The kernel ends it with us, however we end: a run that was broken off leaves no program behind.
    const command = ['--pdeathsig', 'KILL', '--', resolve(ROOT, 'bin', name), ...args]
    this.#process = spawn('setpriv', command, {
      cwd: '/',
      env: { PATH: '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: homedir(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.pid = this.#process.pid ?? 0
    for (const stream of [this.#process.stdout, this.#process.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#output = (this.#output + text).slice(-OUTPUT_CHARS_MAX)
      })
    this.exited = new Promise((resolve, reject) => {
      this.#process.once('error', reject)
      // 'exit', not 'close': a grandchild that holds the pipe must not look like a program that runs.
      this.#process.once('exit', (code, signal) => {
        this.#exit = { code, signal }
        resolve(this.#exit)
      })
    })
    this.exited.catch(() => undefined)
  }

  /** stdout and stderr, as they came. */
  get output(): string {
    return this.#output
  }

  get exit(): Exit | undefined {
    return this.#exit
  }

  get running(): boolean {
    return this.#exit === undefined
  }

  signal(name: NodeJS.Signals): void {
    this.#process.kill(name)
  }

  /** SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    await this.exited
  }

  /** SIGTERM, and SIGKILL when it does not end in time: then it rejects. */
  async stop(withinMs = 20_000): Promise<Exit> {
    this.#process.kill('SIGTERM')
    const late = Promise.withResolvers<undefined>()
    const cancel = systemClock.after(withinMs, () => late.resolve(undefined))
    const exit = await Promise.race([this.exited, late.promise]).finally(cancel)
    if (exit !== undefined) return exit
    await this.kill()
    throw new Error(`pid ${this.pid} did not end within ${withinMs} ms:\n${this.tail()}`)
  }

  /** The end of what it said, for a message. */
  tail(chars = 4_000): string {
    return this.#output.slice(-chars)
  }
}

/** Below what the kernel gives to clients: nobody takes the port while a program that listened on it restarts. */
const PORTS = { from: 12_000, to: 32_000 }

/** A port that is free on 127.0.0.1. Our programs listen on TCP wherever they listen on UDP. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORTS.from + systemRandom.below(PORTS.to - PORTS.from)
    if (await isFree(port)) return port
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

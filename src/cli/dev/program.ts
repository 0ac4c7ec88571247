// One child program of `ccp dev`.
// 1. It writes to its own log file, not through this process: it can still say its last words when this one is gone.
// 2. It gets SIGTERM when this process dies, however it dies: a shell beside it waits for the end of a pipe that only
//    this process holds. (PR_SET_PDEATHSIG is sent once for each thread of a dying parent, and a second SIGTERM means
//    "at once" to our programs: measured, it left a Postgres behind.)
// 3. It has a session of its own: Ctrl-C reaches this process alone, which then stops the programs in order.
import { spawn, type ChildProcess } from 'node:child_process'
import { copyFile, open, readFile, stat, truncate } from 'node:fs/promises'
import type { Clock } from '#lib/clock.ts'

export type ProgramSpec = {
  /** 'engine', 'node local': for people. */
  name: string
  /** The program and its arguments, for the Node that runs this. */
  argv: readonly string[]
  env: Readonly<Record<string, string | undefined>>
  logFile: string
  /** Exit codes after which starting again cannot help (78: EX_CONFIG). */
  finalCodes: readonly number[]
}

/** How one life of it ended: 'exit code 1', 'signal SIGKILL'. */
export type Ending = { code: number | null; text: string }

/** `$1` is the program's pid. It is killed before that pid can be another's. */
const GUARD = 'read -r _; kill -TERM "$1"'
/** A bigger log is put aside; the one that was put aside before is dropped. */
const LOG_BYTES_MAX = 10 * 1024 * 1024
const LOG_CHECK_MS = 30_000
const RESTART = { firstMs: 500, capMs: 10_000, healthyMs: 30_000 }

export class Program {
  readonly #spec: ProgramSpec
  readonly #clock: Clock
  readonly #say: (text: string) => void
  #child: ChildProcess | undefined
  #ended: Promise<Ending> | undefined
  #ending: Ending | undefined
  #keep = false
  #stopping = false
  #crashes = 0
  #logFrom = 0

  constructor(spec: ProgramSpec, deps: { clock: Clock; say: (text: string) => void }) {
    this.#spec = spec
    this.#clock = deps.clock
    this.#say = deps.say
  }

  get name(): string {
    return this.#spec.name
  }

  get logFile(): string {
    return this.#spec.logFile
  }

  /** Where in the log file its last life begins. */
  get logFrom(): number {
    return this.#logFrom
  }

  /** Set while it is not running. */
  get ending(): Ending | undefined {
    return this.#ending
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  async start(): Promise<void> {
    const { argv, env, logFile } = this.#spec
    await this.#trimLog()
    const log = await open(logFile, 'a', 0o600)
    try {
      this.#logFrom = (await log.stat()).size
      // Stopped while this was waiting for the disk.
      if (this.#stopping) return
      const args = ['--disable-warning=ExperimentalWarning', ...argv]
      const stdio = ['ignore' as const, log.fd, log.fd]
      const child = spawn(process.execPath, args, { env, stdio, detached: true })
      const guard = child.pid === undefined ? undefined : guardOf(child.pid)
      this.#child = child
      this.#ending = undefined
      const began = this.#clock.monotonic()
      this.#ended = new Promise((resolve) => {
        child.once('error', (error) => resolve({ code: null, text: error.message }))
        child.once('exit', (code, signal) => {
          guard?.kill('SIGKILL')
          resolve({ code, text: code === null ? `signal ${signal}` : `exit code ${code}` })
        })
      })
      void this.#ended.then((ending) => this.#onEnd(ending, began))
    } finally {
      await log.close()
    }
  }

  /** The program appends, so what it writes next begins the emptied file. */
  async #trimLog(): Promise<void> {
    const { logFile } = this.#spec
    const { size } = await stat(logFile).catch(() => ({ size: 0 }))
    if (size <= LOG_BYTES_MAX) return
    await copyFile(logFile, `${logFile}.1`)
    await truncate(logFile)
    this.#logFrom = 0
  }

  /** From now on it is started again when it ends by itself. */
  keepRunning(): void {
    if (!this.#keep) this.#watchLog()
    this.#keep = true
  }

  #watchLog(): void {
    this.#clock.after(LOG_CHECK_MS, () => {
      if (this.#stopping) return
      void this.#trimLog()
        .catch((error: unknown) => this.#say(`${this.name}: its log: ${String(error)}`))
        .finally(() => this.#watchLog())
    })
  }

  /** SIGTERM, and SIGKILL after `graceMs`. Resolves when it is gone. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true
    const child = this.#child
    if (child === undefined || this.#ending !== undefined) return
    child.kill('SIGTERM')
    const cancel = this.#clock.after(graceMs, () => {
      this.#say(`${this.name} did not stop within ${graceMs / 1000} s; killed`)
      child.kill('SIGKILL')
    })
    await this.#ended
    cancel()
  }

  /** What it wrote since its last start. */
  async output(): Promise<string> {
    const bytes = await readFile(this.logFile).catch(() => Buffer.alloc(0))
    return bytes.subarray(Math.min(this.#logFrom, bytes.length)).toString('utf8')
  }

  #onEnd(ending: Ending, began: number): void {
    this.#ending = ending
    if (this.#stopping || !this.#keep) return
    if (ending.code !== null && this.#spec.finalCodes.includes(ending.code)) {
      this.#say(`${this.name} ended (${ending.text}) and is not started again: see ${this.logFile}`)
      return
    }
    if (this.#clock.monotonic() - began > RESTART.healthyMs) this.#crashes = 0
    const waitMs = Math.min(RESTART.capMs, RESTART.firstMs * 2 ** this.#crashes++)
    this.#say(`${this.name} ended (${ending.text}); starting it again in ${waitMs / 1000} s`)
    this.#clock.after(waitMs, () => {
      if (!this.#stopping) void this.start().catch((error: unknown) => this.#say(String(error)))
    })
  }
}

function guardOf(pid: number): ChildProcess {
  const guard = spawn('/bin/sh', ['-c', GUARD, 'sh', String(pid)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  guard.once('error', () => {}) // no shell: the program lives on when this process is killed
  return guard
}

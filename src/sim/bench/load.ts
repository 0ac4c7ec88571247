// Orders to the load client (load-client.ts), which runs beside the bench and is ended with it.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Order, Target, Told } from '#sim/bench/load-client.ts'

/** What a call of a target sends: a whole request, head and body. */
export function post(
  path: string,
  headers: Readonly<Record<string, string>>,
  body: string,
): string {
  const head = {
    host: '127.0.0.1',
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  }
  const lines = Object.entries(head).map(([name, value]) => `${name}: ${value}\r\n`)
  return `POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
}

export class LoadClient {
  readonly #child: ChildProcess
  readonly #gone: Promise<never>

  constructor() {
    this.#child = fork(join(import.meta.dirname, 'load-client.ts'), { execArgv: [] })
    this.#gone = once(this.#child, 'exit').then(() => {
      throw new Error('the load client ended')
    })
    this.#gone.catch(() => undefined)
  }

  /** One call after another; how long each took, in ms. */
  async timed(target: Target, calls: number): Promise<number[]> {
    const told = await this.#order({ kind: 'timed', target, calls })
    return told.kind === 'timed' ? told.ms : []
  }

  /** Calls that ended in the time, and the time that they took. */
  async load(
    target: Target,
    { callers, forMs }: { callers: number; forMs: number },
  ): Promise<{ done: number; tookMs: number; ms: number[] }> {
    const told = await this.#order({ kind: 'load', target, callers, forMs })
    return told.kind === 'load' ? told : { done: 0, tookMs: forMs, ms: [] }
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.kill('SIGKILL')
    await this.#gone.catch(() => undefined)
  }

  async #order(order: Order): Promise<Told> {
    const answer = once(this.#child, 'message')
    this.#child.send(order)
    const [told] = (await Promise.race([answer, this.#gone])) as [Told]
    if (told.kind === 'failed') throw new Error(told.message)
    return told
  }
}

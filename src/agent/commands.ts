// Commands of the engine, each run once (ND-25): the journal knows an id for as long as the engine may ask again.
//
// Invariants
// 1. An id that was answered is answered again from the journal and not run again.
// 2. A command that a crash of the agent interrupted is run again: the kinds there are only look.
import type { Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'
import type { FromEngine, FromNode } from '#protocol/messages.ts'
import type { Checked } from '#agent/driver.ts'
import type { Journal } from '#agent/journal.ts'

export type CommandsDeps = {
  clock: Clock
  log: Logger
  journal: Journal
  /** Says it on the session of the moment; an engine that missed it asks again at the next one. */
  send(message: FromNode): void
  /** Runs a check of the kind `diag.<runtime>`. */
  check(runtime: string, signal: AbortSignal): Promise<Checked>
}

const OUTPUT_MAX = 64 * 1024

export class Commands {
  readonly #deps: CommandsDeps
  readonly #running = new Map<string, AbortController>()

  constructor(deps: CommandsDeps) {
    this.#deps = deps
  }

  take({ id, kind, deadlineMs }: Extract<FromEngine, { t: 'command' }>): void {
    const known = this.#deps.journal.command(id)
    if (known !== undefined && known !== 'running') return this.#answer(id, known)
    if (this.#running.has(id)) return
    this.#deps.journal.beginCommand(id)
    const abort = new AbortController()
    this.#running.set(id, abort)
    const late = this.#deps.clock.after(deadlineMs, () =>
      abort.abort(new Error(`not done within ${deadlineMs} ms`)),
    )
    this.#run(kind, abort.signal)
      .then((result) => {
        this.#running.delete(id)
        this.#deps.journal.endCommand(id, result)
        this.#deps.log.info({ command: id, kind, ok: result.ok }, `${kind}: ${result.output}`)
        this.#answer(id, result)
      })
      .catch((error) => this.#deps.log.error({ err: error, command: id }, 'a command failed'))
      .finally(late)
  }

  cancel(id: string): void {
    this.#running.get(id)?.abort(new Error('cancelled by the engine'))
  }

  stop(): void {
    for (const abort of this.#running.values()) abort.abort(new Error('the agent stops'))
  }

  async #run(kind: string, signal: AbortSignal): Promise<Checked> {
    const runtime = /^diag\.(\w+)$/.exec(kind)?.[1]
    if (runtime === undefined) return { ok: false, output: `this agent knows no command '${kind}'` }
    try {
      return await this.#deps.check(runtime, signal)
    } catch (error) {
      return { ok: false, output: messageOf(error) }
    }
  }

  #answer(id: string, { ok, output }: Checked): void {
    const text = output.slice(0, OUTPUT_MAX).replaceAll('\0', '\uFFFD')
    this.#deps.send({ t: 'command-result', id, ok, output: text })
  }
}

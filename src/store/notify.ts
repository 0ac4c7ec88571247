// Hearing what other engines change, through Postgres (rule 7).
// 1. The rows say it themselves: triggers (migration 0005) notify of what engines remember, and of nothing else, because
//    a notification holds up the commits of the whole server. An engine's burial is told by who buries it.
// 2. Who listens hears every change that commits while `onHearing` has said true. What commits at another time is not
//    heard, and not made up for: whoever remembers something reads it again.
import { sql } from 'kysely'
import pg from 'pg'
import { backoffMs } from '#lib/backoff.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import { clientConfig, type StoreTarget, type Tx } from '#store/connect.ts'

/** A row that engines remember is another now. */
export type Change =
  | { kind: 'node'; id: string }
  /** `version`: the one that runs now; 0: the function is gone. */
  | { kind: 'function'; id: string; version: number }
  | { kind: 'quota'; orgId: string }
  /** The engine was taken for dead: what the rows say of the nodes that it holds is another thing now. */
  | { kind: 'engine'; id: string }

const CHANNEL = 'clutch'
/** A dead peer behind a firewall, or a server that hangs, says nothing: ask, and give up on silence. */
const PING_EVERY_MS = 5_000
const PING_TIMEOUT_MS = 5_000
/** A connection that does not close is left to the system. */
const GOODBYE_MS = 1_000
const RECONNECT = { baseMs: 50, capMs: 1_000 }

export type ListenerSpec = {
  target: StoreTarget
  onChange(change: Change): void
  onHearing(hearing: boolean): void
}

type Deps = { clock: Clock; random: Random; log: Logger }

/** One connection that listens, and connects again for ever until stopped. */
export class Listener {
  readonly #spec: ListenerSpec
  readonly #deps: Deps
  readonly #stop = new AbortController()
  #running: Promise<void> | undefined
  #hearing = false

  constructor(spec: ListenerSpec, deps: Deps) {
    this.#spec = spec
    this.#deps = deps
  }

  get hearing(): boolean {
    return this.#hearing
  }

  start(): void {
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#stop.abort(new Error('the listener stops'))
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop
    let failures = 0
    while (!signal.aborted) {
      try {
        await this.#listen(() => (failures = 0))
      } catch (error) {
        if (!signal.aborted && failures === 0)
          this.#deps.log.warn({ err: error }, 'changes made by other engines are not heard of')
      }
      this.#hear(false)
      await this.#deps.clock
        .sleep(backoffMs(failures++, RECONNECT, this.#deps.random), signal)
        .catch(() => undefined)
    }
  }

  #hear(hearing: boolean): void {
    if (hearing === this.#hearing) return
    this.#hearing = hearing
    this.#spec.onHearing(hearing)
  }

  /** Resolves or throws when the connection is over. */
  async #listen(connected: () => void): Promise<void> {
    const client = new pg.Client({
      ...clientConfig(this.#spec.target),
      application_name: 'clutch listen',
      connectionTimeoutMillis: PING_TIMEOUT_MS,
      query_timeout: PING_TIMEOUT_MS,
    })
    const over = new Promise<void>((resolve, reject) => {
      client.on('error', reject)
      client.once('end', resolve)
    })
    over.catch(() => undefined)
    client.on('notification', ({ payload }) => {
      const change = changeOf(payload ?? '')
      if (change) this.#spec.onChange(change)
    })
    // A client that is told to end while it connects never says that it has: nothing here waits for that.
    const stopped = new Promise<void>((resolve) => {
      this.#stop.signal.addEventListener('abort', () => resolve(), { once: true })
    })
    try {
      await Promise.race([over, stopped, this.#session(client, connected)])
    } finally {
      this.#hear(false)
      const patience = new Promise<void>((resolve) => this.#deps.clock.after(GOODBYE_MS, resolve))
      await Promise.race([client.end(), patience]).catch(() => undefined)
    }
  }

  async #session(client: pg.Client, connected: () => void): Promise<never> {
    await client.connect()
    await client.query(`listen ${CHANNEL}`)
    connected()
    this.#hear(true)
    for (;;) {
      await this.#deps.clock.sleep(PING_EVERY_MS, this.#stop.signal)
      await client.query('select 1')
    }
  }
}

/** With the transaction's commit. */
export async function tellBuried(tx: Tx, engineId: string): Promise<void> {
  await sql`select pg_notify(${CHANNEL}, ${`engine ${engineId}`})`.execute(tx)
}

/** What a trigger says; undefined: a later version's words. */
function changeOf(payload: string): Change | undefined {
  const [kind, id, version] = payload.split(' ')
  if (id === undefined || id === '') return undefined
  if (kind === 'node') return { kind, id }
  if (kind === 'quota') return { kind, orgId: id }
  if (kind === 'engine') return { kind, id }
  if (kind === 'function' && /^\d+$/.test(version ?? ''))
    return { kind, id, version: Number(version) }
  return undefined
}

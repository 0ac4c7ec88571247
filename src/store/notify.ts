// Waking other engines through Postgres (rule 7).
// 1. `notify` serializes commits on the whole server: call it from rare writes only.
// 2. A notification is a hint. One that was missed costs only delay, because loops re-read the truth; after a broken
//    connection the listener says `onGap`, since anything may have been missed.
import { sql } from 'kysely'
import pg from 'pg'
import { backoffMs } from '#lib/backoff.ts'
import type { Clock } from '#lib/clock.ts'
import type { Logger } from '#lib/log.ts'
import type { Random } from '#lib/random.ts'
import { clientConfig, type Store, type StoreTarget, type Tx } from '#store/connect.ts'

/** Postgres refuses 8,000 bytes and more. */
const PAYLOAD_BYTES_MAX = 7999
/** A dead peer behind a firewall says nothing: ask, and give up on silence. */
const PING_EVERY_MS = 30_000
const PING_TIMEOUT_MS = 10_000
/** A connection that does not close is left to the system. */
const GOODBYE_MS = 1000
const RECONNECT = { baseMs: 100, capMs: 5000 }

/** Tells every listener of `channel`, when the transaction commits. Equal calls within one transaction are one. */
export async function notify(tx: Tx | Store, channel: string, payload = ''): Promise<void> {
  if (Buffer.byteLength(payload) > PAYLOAD_BYTES_MAX)
    throw new Error(`a notification carries ${PAYLOAD_BYTES_MAX} bytes at most`)
  await sql`select pg_notify(${channel}, ${payload})`.execute(tx)
}

export type ListenerSpec = {
  target: StoreTarget
  channels: readonly string[]
  onNotify(channel: string, payload: string): void
  /** Listening began, or began again: re-read everything. */
  onGap(): void
}

/** One connection that listens, and connects again for ever until stopped. */
export class Listener {
  readonly #spec: ListenerSpec
  readonly #deps: { clock: Clock; random: Random; log: Logger }
  readonly #stop = new AbortController()
  #running: Promise<void> | undefined
  #listening = false

  constructor(spec: ListenerSpec, deps: { clock: Clock; random: Random; log: Logger }) {
    this.#spec = spec
    this.#deps = deps
  }

  get listening(): boolean {
    return this.#listening
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
        if (!signal.aborted) this.#deps.log.warn({ err: error }, 'listening to the database ended')
      }
      this.#listening = false
      await this.#deps.clock
        .sleep(backoffMs(failures++, RECONNECT, this.#deps.random), signal)
        .catch(() => undefined)
    }
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
    client.on('notification', (message) =>
      this.#spec.onNotify(message.channel, message.payload ?? ''),
    )
    // A client that is told to end while it connects never says that it has: nothing here waits for that.
    const stopped = new Promise<void>((resolve) => {
      this.#stop.signal.addEventListener('abort', () => resolve(), { once: true })
    })
    try {
      await Promise.race([over, stopped, this.#session(client, connected)])
    } finally {
      const patience = new Promise<void>((resolve) => this.#deps.clock.after(GOODBYE_MS, resolve))
      await Promise.race([client.end(), patience]).catch(() => undefined)
    }
  }

  async #session(client: pg.Client, connected: () => void): Promise<never> {
    await client.connect()
    for (const channel of this.#spec.channels)
      await client.query(`listen ${client.escapeIdentifier(channel)}`)
    connected()
    this.#listening = true
    this.#spec.onGap()
    return this.#ping(client)
  }

  async #ping(client: pg.Client): Promise<never> {
    for (;;) {
      await this.#deps.clock.sleep(PING_EVERY_MS, this.#stop.signal)
      await client.query('select 1')
    }
  }
}

// API keys of orgs as calls use them: looked up by hash, remembered for a moment, their last use written in batches.
// 1. A key that was revoked or has expired opens nothing: at once on the engine that revoked it, within KEY_CACHED_MS on
//    the others.
// 2. While the store is away, keys that were good a moment before it went stay good (OP-9): nobody can revoke meanwhile.
// 3. Unknown keys are not remembered: they cost the caller a look-up each, and us no memory.
import type { Role } from '#api/base.ts'
import { KEY_CACHED_MS } from '#core/access/limits.ts'
import { AppError } from '#lib/error.ts'
import type { Clock, Instant } from '#lib/clock.ts'
import { sha256 } from '#lib/bytes.ts'
import type { LoopSpec } from '#lib/loop.ts'
import type { Random } from '#lib/random.ts'
import type { KeyRow } from '#store/auth-keys.ts'

export const ORG_KEY_PREFIX = 'clt_k_'
const SECRET_BYTES = 32
/** Some hundred bytes each. */
const CACHED_MAX = 10_000
/** A crash loses at most this much of "last used". */
const FLUSH_EVERY_MS = 10_000

export type GoodKey = {
  id: string
  name: string
  expiresAt: Instant | null
  org: { id: string; slug: string; name: string; role: Role }
}

/** A new key, to be shown once, and the hash that is kept. */
export function mintOrgKey(random: Random): { secret: string; hash: string } {
  const secret = ORG_KEY_PREFIX + Buffer.from(random.bytes(SECRET_BYTES)).toString('base64url')
  return { secret, hash: hashOf(secret) }
}

const hashOf = (secret: string): string => sha256(secret).toString('base64url')

export type KeyDeps = {
  /** The key of this hash in the store, expired or not. */
  find(hash: string): Promise<KeyRow | undefined>
  /** Writes when keys were last used. */
  touch(used: readonly { id: string; at: Instant }[]): Promise<void>
  clock: Clock
  roleOf: (text: string) => Role
}

export class OrgKeys {
  readonly #deps: KeyDeps
  readonly #cache = new Map<string, { key: GoodKey; at: number }>()
  readonly #looking = new Map<string, Promise<GoodKey | undefined>>()
  readonly #used = new Map<string, Instant>()

  constructor(deps: KeyDeps) {
    this.#deps = deps
  }

  /** The key of this secret while it is good. */
  async find(secret: string): Promise<GoodKey | undefined> {
    const { clock } = this.#deps
    const hash = hashOf(secret)
    const cached = this.#cache.get(hash)
    const fresh = cached !== undefined && clock.monotonic() - cached.at < KEY_CACHED_MS
    const key = fresh ? cached.key : await this.#look(hash)
    if (!key || (key.expiresAt !== null && key.expiresAt <= clock.now())) return undefined
    this.#used.set(key.id, clock.now())
    return key
  }

  /** The key was revoked: forget it now. */
  drop(id: string): void {
    for (const [hash, { key }] of this.#cache) if (key.id === id) this.#cache.delete(hash)
  }

  /** One look-up at a time a key, however many calls wait for it. */
  #look(hash: string): Promise<GoodKey | undefined> {
    const before = this.#looking.get(hash)
    if (before) return before
    const looking = this.#load(hash).finally(() => this.#looking.delete(hash))
    this.#looking.set(hash, looking)
    return looking
  }

  async #load(hash: string): Promise<GoodKey | undefined> {
    const { clock, roleOf } = this.#deps
    const at = clock.monotonic()
    try {
      const row = await this.#deps.find(hash)
      this.#cache.delete(hash)
      if (!row) return undefined
      const { id, name, expiresAt, orgId, slug, orgName, role } = row
      const org = { id: orgId, slug, name: orgName, role: roleOf(role) }
      const key = { id, name, expiresAt: expiresAt?.getTime() ?? null, org }
      this.#remember(hash, { key, at })
      return key
    } catch (error) {
      const known = this.#cache.get(hash)
      if (known && error instanceof AppError && error.code === 'UNAVAILABLE') return known.key
      throw error
    }
  }

  #remember(hash: string, entry: { key: GoodKey; at: number }): void {
    if (this.#cache.size >= CACHED_MAX) {
      const oldest = this.#cache.keys().next()
      if (!oldest.done) this.#cache.delete(oldest.value)
    }
    this.#cache.set(hash, entry)
  }

  /** Writes when each key was last used. */
  async flush(): Promise<number> {
    const used = [...this.#used].map(([id, at]) => ({ id, at }))
    if (used.length === 0) return 0
    await this.#deps.touch(used)
    // One that was used again meanwhile waits for the next time, and all do when the store is away.
    for (const { id, at } of used) if (this.#used.get(id) === at) this.#used.delete(id)
    return used.length
  }

  /** The loop that flushes. */
  loop(): LoopSpec {
    return {
      name: 'flush-key-use',
      everyMs: FLUSH_EVERY_MS,
      pass: async () => ({ flushed: await this.flush() }),
    }
  }
}

// Chance is an argument (rule 3). Secrets come from `systemRandom` only.
import { createHash, randomBytes } from 'node:crypto'

export type Random = {
  bytes(count: number): Uint8Array
  /** Uniform in [0, 1). */
  float(): number
  /** Uniform integer in [0, limit). */
  below(limit: number): number
}

const from = (bytes: (count: number) => Uint8Array): Random => {
  const float = (): number => {
    const b = Buffer.from(bytes(6))
    return b.readUIntBE(0, 6) / 2 ** 48
  }
  return { bytes, float, below: (limit) => Math.floor(float() * limit) }
}

/** An id asks for 16 bytes, and asking the system costs ten times what the rest of it does. */
const POOL_BYTES = 4096
let pool = Buffer.alloc(0)
let taken = 0

/** Small requests share what one large one brought; bytes that were given out are nowhere else. */
function pooled(count: number): Uint8Array {
  if (count > POOL_BYTES / 8) return randomBytes(count)
  if (taken + count > pool.length) {
    pool = randomBytes(POOL_BYTES)
    taken = 0
  }
  const given = new Uint8Array(pool.subarray(taken, taken + count))
  pool.fill(0, taken, taken + count)
  taken += count
  return given
}

export const systemRandom: Random = from(pooled)

/** The same seed gives the same bytes for ever: SHA-256 in counter mode. For tests and simulations. */
export function seededRandom(seed: string | number): Random {
  let counter = 0
  let held = Buffer.alloc(0)
  return from((count) => {
    const out = Buffer.alloc(count)
    for (let at = 0; at < count;) {
      if (held.length === 0) held = createHash('sha256').update(`${seed}:${counter++}`).digest()
      const size = Math.min(held.length, count - at)
      held.copy(out, at, 0, size)
      held = held.subarray(size)
      at += size
    }
    return Uint8Array.from(out)
  })
}

// Ids are made here, never by the database (ND-27): sortable by time, 80 random bits (the ULID layout).
import type { Instant } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'

export type IdPrefix =
  | 'node'
  | 'org'
  | 'site'
  | 'pool'
  | 'fn'
  | 'fnv'
  | 'inv'
  | 'cmd'
  | 'evt'
  | 'eng'
  | 'slot'
  | 'req'
  | 'key'
  | 'mem'

/** 'node_01jd…': the prefix, then 26 Crockford base32 digits, 10 of time and 16 of chance. */
export function newId(prefix: IdPrefix, now: Instant, random: Random): string {
  let time = ''
  for (let left = now, i = 0; i < 10; i++, left = Math.floor(left / 32))
    time = ALPHABET[left % 32] + time
  let chance = ''
  for (const byte of random.bytes(16)) chance += ALPHABET[byte % 32]
  return `${prefix}_${time}${chance}`
}

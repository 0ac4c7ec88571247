// What the identity system leaves behind: rows that have expired and open nothing any more.
import type { Instant } from '#lib/clock.ts'
import type { Store } from '#store/connect.ts'

/** Deletes sign-ins, device codes, invitations and counters of sign-in tries that ended before `before`; returns how many. */
export async function pruneExpired(db: Store, before: Instant): Promise<number> {
  const at = new Date(before)
  const results = [
    await db.deleteFrom('sessions').where('expiresAt', '<', at).executeTakeFirst(),
    await db.deleteFrom('deviceCode').where('expiresAt', '<', at).executeTakeFirst(),
    await db.deleteFrom('verifications').where('expiresAt', '<', at).executeTakeFirst(),
    await db.deleteFrom('invitations').where('expiresAt', '<', at).executeTakeFirst(),
    await db.deleteFrom('setupLinks').where('expiresAt', '<', at).executeTakeFirst(),
    await db.deleteFrom('rateLimits').where('lastRequest', '<', before).executeTakeFirst(),
  ]
  return results.reduce((sum, result) => sum + Number(result.numDeletedRows), 0)
}

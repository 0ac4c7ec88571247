// Table setup_links: the one-time link of the first owner, by its hash.
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'
import { transaction } from '#store/connect.ts'

/** Keeps one link, in place of all before it. */
export async function replaceSetupLink(
  db: Store,
  link: { tokenHash: Buffer; expiresAt: Instant },
): Promise<void> {
  await transaction(db, async (tx) => {
    await tx.deleteFrom('setupLinks').execute()
    await tx
      .insertInto('setupLinks')
      .values({ tokenHash: link.tokenHash, expiresAt: new Date(link.expiresAt) })
      .execute()
  })
}

/** True while the link is good, its row locked until the transaction ends: of two at once, one waits. */
export async function lockSetupLink(tx: Tx, tokenHash: Buffer, now: Instant): Promise<boolean> {
  const row = await tx
    .selectFrom('setupLinks')
    .select('expiresAt')
    .where('tokenHash', '=', tokenHash)
    .forUpdate()
    .executeTakeFirst()
  return row !== undefined && row.expiresAt.getTime() > now
}

export async function burnSetupLink(tx: Tx, tokenHash: Buffer): Promise<void> {
  await tx.deleteFrom('setupLinks').where('tokenHash', '=', tokenHash).execute()
}

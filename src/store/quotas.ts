// What a platform operator set for an org (AC-6). Where nothing is set the engine's own defaults hold.
import type { Store, Tx } from '#store/connect.ts'

/** Null: not set. */
export type Quotas = { invocationsAtOnce: number | null }

export async function findQuotas(db: Store | Tx, orgId: string): Promise<Quotas> {
  const row = await db
    .selectFrom('orgQuotas')
    .select('invocationsAtOnce')
    .where('orgId', '=', orgId)
    .executeTakeFirst()
  return row ?? { invocationsAtOnce: null }
}

export async function saveQuotas(
  tx: Tx,
  { orgId, now, ...quotas }: Quotas & { orgId: string; now: Date },
): Promise<void> {
  const row = { ...quotas, updatedAt: now }
  await tx
    .insertInto('orgQuotas')
    .values({ orgId, ...row })
    .onConflict((conflict) => conflict.column('orgId').doUpdateSet(row))
    .execute()
}

// Tables sites and pools. Every org has one of each named `default` (D33), made when it first needs them.
import type { Instant } from '#lib/clock.ts'
import type { Tx } from '#store/connect.ts'

const DEFAULT_NAME = 'default'

/** The ids of the org's default site and pool; `siteId` and `poolId` are used if they have to be made. */
export async function ensureDefaultPool(
  tx: Tx,
  row: { orgId: string; siteId: string; poolId: string; now: Instant },
): Promise<{ siteId: string; poolId: string }> {
  const found = await defaultPool(tx, row.orgId)
  if (found) return found
  const shared = { orgId: row.orgId, name: DEFAULT_NAME, createdAt: new Date(row.now) }
  await tx
    .insertInto('sites')
    .values({ ...shared, id: row.siteId })
    .onConflict((conflict) => conflict.columns(['orgId', 'name']).doNothing())
    .execute()
  await tx
    .insertInto('pools')
    .columns(['id', 'orgId', 'siteId', 'name', 'kind', 'createdAt'])
    .expression((eb) =>
      eb
        .selectFrom('sites')
        .select((site) => [
          site.val(row.poolId).as('id'),
          'sites.orgId',
          'sites.id as siteId',
          'sites.name',
          site.val('vps-host').as('kind'),
          site.val(shared.createdAt).as('createdAt'),
        ])
        .where('orgId', '=', row.orgId)
        .where('name', '=', DEFAULT_NAME),
    )
    .onConflict((conflict) => conflict.columns(['orgId', 'name']).doNothing())
    .execute()
  const made = await defaultPool(tx, row.orgId)
  if (!made) throw new Error('invariant broken: a default pool was made and is not there')
  return made
}

async function defaultPool(
  tx: Tx,
  orgId: string,
): Promise<{ siteId: string; poolId: string } | undefined> {
  return tx
    .selectFrom('pools')
    .select(['id as poolId', 'siteId'])
    .where('orgId', '=', orgId)
    .where('name', '=', DEFAULT_NAME)
    .executeTakeFirst()
}

// Rows of nodes for tests, as enrolling and registering would have left them.
import type { Insertable } from 'kysely'
import type { Store } from '#store/connect.ts'
import type { Nodes } from '#store/schema.gen.ts'

const AT = new Date('2026-01-01T00:00:00Z')

/** The org's site and pool; once an org. */
async function seedPool(db: Store, orgId: string): Promise<void> {
  const row = { orgId, name: 'default', createdAt: AT }
  await db
    .insertInto('sites')
    .values({ id: `site_${orgId}`, ...row })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  await db
    .insertInto('pools')
    .values({ id: `pool_${orgId}`, siteId: `site_${orgId}`, kind: 'vps-host', ...row })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}

/** A node that takes work, but for what `over` says. `id` and `node_id` are the same text. */
export const nodeRow = (
  id: string,
  orgId: string,
  over: Partial<Insertable<Nodes>> = {},
): Insertable<Nodes> => ({
  id,
  orgId,
  nodeId: id,
  siteId: `site_${orgId}`,
  poolId: `pool_${orgId}`,
  role: 'host',
  trust: 'tenant-owned',
  trustTier: 'secure',
  provisionState: 'adopted',
  maintenance: false,
  cordoned: false,
  power: 'unknown',
  connectivity: 'connected',
  noScheduleReasons: [],
  generation: 1,
  observedGeneration: 1,
  identityGeneration: 1,
  version: 1,
  cpuMillis: 4_000,
  memMb: 4_096,
  runtimes: ['wasm'],
  communityFlag: false,
  jailerFlag: false,
  usedCpuMillis: 0,
  usedMemMb: 0,
  createdAt: AT,
  updatedAt: AT,
  ...over,
})

/** Nodes of one org with a live session at the engine, unless `engineId` is null. */
export async function seedNodes(
  db: Store,
  rows: readonly Insertable<Nodes>[],
  engineId: string | null,
): Promise<void> {
  for (const orgId of new Set(rows.map((row) => row.orgId))) await seedPool(db, orgId)
  for (let at = 0; at < rows.length; at += 500)
    await db
      .insertInto('nodes')
      .values(rows.slice(at, at + 500))
      .execute()
  if (engineId === null) return
  const sessions = rows.map((row) => ({
    nodeId: row.id,
    engineId,
    epoch: 1,
    transport: 'tls',
    remoteAddress: '127.0.0.1',
    connectedAt: AT,
  }))
  for (let at = 0; at < sessions.length; at += 500)
    await db
      .insertInto('nodeSessions')
      .values(sessions.slice(at, at + 500))
      .execute()
}

// Components that an org sent ahead of a deploy. The row is the org's right to deploy the bytes by their hash; the bytes
// themselves are a component like any other, which is unused while neither a version nor an upload names it.
import { sql } from 'kysely'
import { UPLOADS_KEPT_MAX } from '#core/function/limits.ts'
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

export type Upload = { orgId: string; sha256: string; sizeBytes: number }

/**
 * Records bytes that are in the blob store. A component that is there already counts as new: whoever removes unused bytes
 * has done so before this returns, or leaves these alone; so the caller looks for them again after it. Of an org the
 * newest UPLOADS_KEPT_MAX stay. Returns the others' hashes that nobody prepared: their bytes may go with `forgetUnused`.
 */
export async function saveUpload(
  tx: Tx,
  upload: Upload & { kind: 'component' | 'preview1'; now: Date },
): Promise<string[]> {
  const { orgId, sha256, sizeBytes, kind, now } = upload
  await tx
    .insertInto('components')
    .values({ sha256, sizeBytes, kind, createdAt: now })
    .onConflict((conflict) => conflict.column('sha256').doUpdateSet({ createdAt: now }))
    .execute()
  await tx
    .insertInto('componentUploads')
    .values({ orgId, sha256, sizeBytes, createdAt: now })
    .onConflict((conflict) => conflict.columns(['orgId', 'sha256']).doUpdateSet({ createdAt: now }))
    .execute()
  // Refused components come again and again, each with other bytes: the older make room.
  const { rows } = await sql<{ sha256: string; prepared: boolean }>`
    delete from component_uploads where org_id = ${orgId} and sha256 in (
      select sha256 from component_uploads where org_id = ${orgId}
      order by created_at desc, sha256 offset ${UPLOADS_KEPT_MAX}
    )
    returning sha256,
      exists (select from artifacts a where a.component_sha256 = component_uploads.sha256) as prepared
  `.execute(tx)
  return rows.filter(({ prepared }) => !prepared).map((row) => row.sha256)
}

/** The bytes' size when the org may deploy them by their hash: it sent them, or has a version of them. */
export async function deployableSize(
  db: Store | Tx,
  { orgId, sha256 }: { orgId: string; sha256: string },
): Promise<number | undefined> {
  const row = await db
    .selectFrom('componentUploads')
    .select('sizeBytes')
    .where('orgId', '=', orgId)
    .where('sha256', '=', sha256)
    .unionAll((union) =>
      union
        .selectFrom('functionVersions')
        .select('sizeBytes')
        .where('orgId', '=', orgId)
        .where('componentSha256', '=', sha256),
    )
    .limit(1)
    .executeTakeFirst()
  return row?.sizeBytes
}

/** The bytes became a version, which is the org's right to them from now on. */
export async function useUpload(
  tx: Tx,
  { orgId, sha256 }: { orgId: string; sha256: string },
): Promise<void> {
  await tx
    .deleteFrom('componentUploads')
    .where('orgId', '=', orgId)
    .where('sha256', '=', sha256)
    .execute()
}

/** Drops those that came before `before`; returns how many. Their bytes are then unused. */
export async function pruneUploads(db: Store, before: Instant): Promise<number> {
  const result = await db
    .deleteFrom('componentUploads')
    .where('createdAt', '<', new Date(before))
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

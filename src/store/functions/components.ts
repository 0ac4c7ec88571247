// What was deployed, by content, and what it was prepared into. The bytes stand in the blob store.
// 1. A row of components or artifacts says that its bytes are in the blob store: they are put there first.
import { sql } from 'kysely'
import type { Store, Tx } from '#store/connect.ts'

export type ArtifactKey = {
  componentSha256: string
  /** Name and version of the preparing program: another one prepares again. */
  preparer: string
  /** The cap of the guest's memory is built into the artifact. */
  memMb: number
}
export type ArtifactRow = { sha256: string; sizeBytes: number; kind: 'component' | 'preview1' }

/** The prepared form, and the kind of its component. */
export async function findArtifact(
  db: Store | Tx,
  key: ArtifactKey,
): Promise<ArtifactRow | undefined> {
  const row = await db
    .selectFrom('artifacts')
    .innerJoin('components', 'components.sha256', 'artifacts.componentSha256')
    .select(['artifacts.sha256', 'artifacts.sizeBytes', 'components.kind'])
    .where('artifacts.componentSha256', '=', key.componentSha256)
    .where('artifacts.preparer', '=', key.preparer)
    .where('artifacts.memMb', '=', key.memMb)
    .executeTakeFirst()
  return row && { ...row, kind: row.kind === 'component' ? 'component' : 'preview1' }
}

/**
 * Records a component and its artifact. One that is there already counts as new: `forgetUnused` leaves the young alone,
 * and waits for this transaction.
 */
export async function saveArtifact(
  db: Store | Tx,
  key: ArtifactKey,
  made: { artifact: ArtifactRow; componentBytes: number; now: Date },
): Promise<void> {
  const { artifact, now } = made
  await db
    .insertInto('components')
    .values({
      sha256: key.componentSha256,
      sizeBytes: made.componentBytes,
      kind: artifact.kind,
      createdAt: now,
    })
    .onConflict((conflict) => conflict.column('sha256').doUpdateSet({ createdAt: now }))
    .execute()
  await db
    .insertInto('artifacts')
    .values({ ...key, sha256: artifact.sha256, sizeBytes: artifact.sizeBytes, createdAt: now })
    .onConflict((conflict) =>
      conflict
        .columns(['componentSha256', 'preparer', 'memMb'])
        .doUpdateSet({ sha256: artifact.sha256, sizeBytes: artifact.sizeBytes, createdAt: now }),
    )
    .execute()
}

const unnamed = sql`
  not exists (select from function_versions v where v.component_sha256 = c.sha256)
  and not exists (select from component_uploads u where u.sha256 = c.sha256)`

/** Components that no version and no upload names and that are older than `before`: their bytes may go if it stays so. */
export async function unusedComponents(
  db: Store | Tx,
  spec: { before: Date; limit: number },
): Promise<string[]> {
  const { rows } = await sql<{ sha256: string }>`
    select c.sha256 from components c
    where c.created_at < ${spec.before} and ${unnamed}
    order by c.created_at limit ${spec.limit}
  `.execute(db)
  return rows.map((row) => row.sha256)
}

/**
 * Forgets those of the components that still nothing names, and returns the hashes whose bytes nothing names any
 * more: the caller removes them before it commits. Components that a deploy is about to use are locked by it, or young.
 */
export async function forgetUnused(
  tx: Tx,
  components: readonly string[],
  before: Date,
): Promise<string[]> {
  const { rows: unused } = await sql<{ sha256: string }>`
    select c.sha256 from components c
    where c.sha256 = any(${[...components]}::text[]) and c.created_at < ${before} and ${unnamed}
    for update skip locked
  `.execute(tx)
  const hashes = unused.map((row) => row.sha256)
  if (hashes.length === 0) return []
  const gone = await tx
    .deleteFrom('artifacts')
    .where('componentSha256', 'in', hashes)
    .returning('sha256')
    .execute()
  await tx.deleteFrom('components').where('sha256', 'in', hashes).execute()
  const freed = [...new Set([...hashes, ...gone.map((row) => row.sha256)])]
  const { rows: named } = await sql<{ sha256: string }>`
    select sha256 from artifacts where sha256 = any(${freed}::text[])
    union select sha256 from components where sha256 = any(${freed}::text[])
  `.execute(tx)
  const kept = new Set(named.map((row) => row.sha256))
  return freed.filter((hash) => !kept.has(hash))
}

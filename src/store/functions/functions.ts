// Functions and their versions. A version never changes; a function names its current one.
import { sql } from 'kysely'
import type { Store, Tx } from '#store/connect.ts'

export type VersionFacts = {
  componentSha256: string
  /** Of the component as it was deployed. */
  sizeBytes: number
  cpuMillis: number
  memMb: number
  allowCommunity: boolean
  region: string | null
  timeoutMs: number
  /** Null: no limit but the time. */
  fuelMax: number | null
  idempotent: boolean
  public: boolean
}

/** A function with its current version. */
export type FunctionRow = VersionFacts & {
  id: string
  orgId: string
  name: string
  versionId: string
  version: number
  createdAt: Date
  updatedAt: Date
}

export type VersionRow = VersionFacts & {
  id: string
  version: number
  current: boolean
  createdAt: Date
  createdBy: string
}

const factColumns = [
  'v.componentSha256',
  'v.sizeBytes',
  'v.cpuMillis',
  'v.memMb',
  'v.allowCommunity',
  'v.region',
  'v.timeoutMs',
  'v.fuelMax',
  'v.idempotent',
  'v.public',
] as const

const functionsWithVersion = (db: Store | Tx) =>
  db
    .selectFrom('functions as f')
    .innerJoin('functionVersions as v', (join) =>
      join.onRef('v.functionId', '=', 'f.id').onRef('v.version', '=', 'f.currentVersion'),
    )
    .select([
      'f.id',
      'f.orgId',
      'f.name',
      'v.id as versionId',
      'v.version',
      'f.createdAt',
      'f.updatedAt',
      ...factColumns,
    ])

export async function functionByName(
  db: Store | Tx,
  orgId: string,
  name: string,
): Promise<FunctionRow | undefined> {
  return functionsWithVersion(db)
    .where('f.orgId', '=', orgId)
    .where('f.name', '=', name)
    .executeTakeFirst()
}

/** The function of this name that anybody may invoke, of an org by id or slug. */
export async function publicFunction(
  db: Store | Tx,
  { org, name }: { org: string; name: string },
): Promise<{ id: string; orgId: string } | undefined> {
  return (
    db
      .selectFrom('functions as f')
      .innerJoin('organizations as o', 'o.id', 'f.orgId')
      .innerJoin('functionVersions as v', (join) =>
        join.onRef('v.functionId', '=', 'f.id').onRef('v.version', '=', 'f.currentVersion'),
      )
      .select(['f.id', 'f.orgId'])
      .where((eb) => eb.or([eb('o.id', '=', org), eb('o.slug', '=', org)]))
      .where('f.name', '=', name)
      .where('v.public', '=', true)
      // An id before another org's slug, as everywhere.
      .orderBy((eb) => eb('o.id', '=', org), 'desc')
      .limit(1)
      .executeTakeFirst()
  )
}

/** By name; `after` is the last name of the page before. */
export async function listFunctions(
  db: Store | Tx,
  orgId: string,
  page: { after: string | undefined; limit: number },
): Promise<FunctionRow[]> {
  return functionsWithVersion(db)
    .where('f.orgId', '=', orgId)
    .$if(page.after !== undefined, (q) => q.where('f.name', '>', page.after ?? ''))
    .orderBy('f.name')
    .limit(page.limit)
    .execute()
}

type FunctionOf = { orgId: string; functionId: string }

/** Newest first. */
export async function versionsOf(db: Store | Tx, of: FunctionOf): Promise<VersionRow[]> {
  return db
    .selectFrom('functionVersions as v')
    .innerJoin('functions as f', 'f.id', 'v.functionId')
    .select([
      'v.id',
      'v.version',
      sql<boolean>`v.version = f.current_version`.as('current'),
      'v.createdAt',
      'v.createdBy',
      ...factColumns,
    ])
    .where('v.orgId', '=', of.orgId)
    .where('v.functionId', '=', of.functionId)
    .orderBy('v.version', 'desc')
    .execute()
}

export type NewVersion = VersionFacts & {
  orgId: string
  name: string
  /** Of the function, if the name is new. */
  functionId: string
  versionId: string
  createdBy: string
  now: Date
}

/**
 * Adds a version and makes it current; a new name makes the function. Two deploys of one name at once are two versions:
 * the function's row is locked until the transaction ends.
 */
export async function addVersion(tx: Tx, made: NewVersion): Promise<FunctionRow> {
  const { orgId, name, functionId, versionId, createdBy, now, ...facts } = made
  const owner = await tx
    .insertInto('functions')
    .values({
      id: functionId,
      orgId,
      name,
      currentVersion: 1,
      lastVersion: 1,
      createdAt: now,
      updatedAt: now,
    })
    .onConflict((conflict) =>
      conflict.columns(['orgId', 'name']).doUpdateSet({
        currentVersion: sql`functions.last_version + 1`,
        lastVersion: sql`functions.last_version + 1`,
        updatedAt: now,
      }),
    )
    .returning(['id', 'currentVersion', 'createdAt'])
    .executeTakeFirstOrThrow()
  await tx
    .insertInto('functionVersions')
    .values({
      id: versionId,
      functionId: owner.id,
      orgId,
      version: owner.currentVersion,
      ...facts,
      createdAt: now,
      createdBy,
    })
    .execute()
  return {
    ...facts,
    id: owner.id,
    orgId,
    name,
    versionId,
    version: owner.currentVersion,
    createdAt: owner.createdAt,
    updatedAt: now,
  }
}

/** Deletes a function with its versions; slots stay until what runs in them has ended. */
export async function deleteFunction(tx: Tx, of: FunctionOf): Promise<void> {
  await tx
    .deleteFrom('functions')
    .where('orgId', '=', of.orgId)
    .where('id', '=', of.functionId)
    .execute()
}

/** Locks the function against deploys and other rollbacks; its id, or undefined. */
export async function lockFunction(
  tx: Tx,
  orgId: string,
  name: string,
): Promise<string | undefined> {
  const row = await tx
    .selectFrom('functions')
    .select('id')
    .where('orgId', '=', orgId)
    .where('name', '=', name)
    .forUpdate()
    .executeTakeFirst()
  return row?.id
}

export async function setCurrentVersion(
  tx: Tx,
  of: FunctionOf & { version: number; now: Date },
): Promise<void> {
  await tx
    .updateTable('functions')
    .set({ currentVersion: of.version, updatedAt: of.now })
    .where('orgId', '=', of.orgId)
    .where('id', '=', of.functionId)
    .execute()
}

/** Drops all but the newest `keep` versions of every function; the current one always stays. Returns how many. */
export async function pruneVersions(db: Store, keep: number): Promise<number> {
  const { rows } = await sql`
    delete from function_versions v using functions f
    where f.id = v.function_id and v.version <= f.last_version - ${keep}
      and v.version <> f.current_version
    returning v.id
  `.execute(db)
  return rows.length
}

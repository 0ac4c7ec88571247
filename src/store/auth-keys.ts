// Table apikey: the API keys of orgs, in the columns and the hash of the identity system's plugin. We read and write it
// ourselves: the plugin writes the row on every call, and its own limiter allows ten calls a day.
import { sql } from 'kysely'
import { z } from 'zod'
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

const CONFIG = 'org'

export type OrgKey = {
  id: string
  orgId: string
  name: string
  role: string
  createdAt: Date
  expiresAt: Date | null
  lastUsedAt: Date | null
}

/** A key with its org's names. */
export type KeyRow = OrgKey & { slug: string; orgName: string }

export async function insertOrgKey(
  tx: Store | Tx,
  row: {
    id: string
    orgId: string
    name: string
    role: string
    /** SHA-256 of the whole key, base64url. */
    hash: string
    prefix: string
    expiresAt: Instant | null
    now: Instant
  },
): Promise<void> {
  await tx
    .insertInto('apikey')
    .values({
      id: row.id,
      configId: CONFIG,
      name: row.name,
      referenceId: row.orgId,
      prefix: row.prefix,
      key: row.hash,
      enabled: true,
      rateLimitEnabled: false,
      requestCount: 0,
      expiresAt: row.expiresAt === null ? null : new Date(row.expiresAt),
      createdAt: new Date(row.now),
      updatedAt: new Date(row.now),
      metadata: JSON.stringify({ role: row.role }),
    })
    .execute()
}

/** The key of this hash with its org, whether or not it has expired. */
export async function findOrgKeyByHash(db: Store | Tx, hash: string): Promise<KeyRow | undefined> {
  const row = await keys(db)
    .innerJoin('organizations', 'organizations.id', 'apikey.referenceId')
    .select(['organizations.slug', 'organizations.name as orgName'])
    .where('apikey.key', '=', hash)
    .where('apikey.enabled', '=', true)
    .executeTakeFirst()
  return row && { ...toKey(row), slug: row.slug, orgName: row.orgName }
}

export async function findOrgKey(
  tx: Store | Tx,
  of: { orgId: string; id: string },
): Promise<OrgKey | undefined> {
  const row = await keys(tx)
    .where('apikey.referenceId', '=', of.orgId)
    .where('apikey.id', '=', of.id)
    .executeTakeFirst()
  return row && toKey(row)
}

export async function listOrgKeys(tx: Tx, orgId: string, limit: number): Promise<OrgKey[]> {
  const rows = await keys(tx)
    .where('apikey.referenceId', '=', orgId)
    .orderBy('apikey.createdAt', 'desc')
    .orderBy('apikey.id')
    .limit(limit)
    .execute()
  return rows.map(toKey)
}

export async function deleteOrgKey(tx: Tx, of: { orgId: string; id: string }): Promise<void> {
  await tx
    .deleteFrom('apikey')
    .where('referenceId', '=', of.orgId)
    .where('id', '=', of.id)
    .where('configId', '=', CONFIG)
    .execute()
}

/** Deletes the org's keys of this name. */
export async function deleteOrgKeysNamed(
  tx: Store | Tx,
  of: { orgId: string; name: string },
): Promise<void> {
  await tx
    .deleteFrom('apikey')
    .where('referenceId', '=', of.orgId)
    .where('name', '=', of.name)
    .where('configId', '=', CONFIG)
    .execute()
}

/** Writes the last use of many keys in one statement; a later one that is there already stays. */
export async function touchOrgKeys(
  db: Store,
  used: readonly { id: string; at: Instant }[],
): Promise<void> {
  await sql`
    update apikey set last_request = greatest(last_request, used.at)
    from unnest(${used.map((one) => one.id)}::text[],
                ${used.map((one) => new Date(one.at).toISOString())}::timestamptz[]) as used (id, at)
    where apikey.id = used.id
  `.execute(db)
}

const keys = (db: Store | Tx) =>
  db
    .selectFrom('apikey')
    .select([
      'apikey.id',
      'apikey.referenceId as orgId',
      'apikey.name',
      'apikey.metadata',
      'apikey.createdAt',
      'apikey.expiresAt',
      'apikey.lastRequest as lastUsedAt',
    ])
    .where('apikey.configId', '=', CONFIG)

type Row = Awaited<ReturnType<ReturnType<typeof keys>['executeTakeFirstOrThrow']>>

const Metadata = z.object({ role: z.string() })

function toKey({ metadata, name, ...row }: Row): OrgKey {
  // A key whose role cannot be read may do the least there is.
  const parsed = Metadata.safeParse(parsedJson(metadata))
  return { ...row, name: name ?? '', role: parsed.success ? parsed.data.role : 'guest' }
}

function parsedJson(text: string | null): unknown {
  try {
    return JSON.parse(text ?? 'null')
  } catch {
    return undefined
  }
}

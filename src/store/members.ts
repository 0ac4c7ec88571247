// The identity system's tables of people and orgs, as far as we read and write them ourselves.
import type { Instant } from '#lib/clock.ts'
import type { Store, Tx } from '#store/connect.ts'

export type Org = { id: string; slug: string; name: string }

/** D50: the org that every platform has. */
export const PLATFORM_SLUG = 'platform'

/** Makes the platform's org when there is none; the id of the one there is. */
export async function ensurePlatformOrg(
  db: Store | Tx,
  row: { id: string; now: Instant },
): Promise<string> {
  await insertOrg(db, { id: row.id, slug: PLATFORM_SLUG, name: 'Platform', now: row.now })
  const org = await findOrg(db, PLATFORM_SLUG)
  if (!org) throw new Error('invariant broken: the platform has no org')
  return org.id
}

/** False when the slug is taken. */
export async function insertOrg(db: Store | Tx, org: Org & { now: Instant }): Promise<boolean> {
  const { now, ...row } = org
  const result = await db
    .insertInto('organizations')
    .values({ ...row, createdAt: new Date(now) })
    .onConflict((conflict) => conflict.column('slug').doNothing())
    .executeTakeFirst()
  return result.numInsertedOrUpdatedRows === 1n
}

export async function findOrg(db: Store | Tx, idOrSlug: string): Promise<Org | undefined> {
  return db
    .selectFrom('organizations')
    .select(['id', 'slug', 'name'])
    .where((eb) => eb.or([eb('id', '=', idOrSlug), eb('slug', '=', idOrSlug)]))
    .orderBy((eb) => eb('id', '=', idOrSlug), 'desc')
    .limit(1)
    .executeTakeFirst()
}

/** The orgs of a person with their role there, the first joined first. */
export async function orgsOfUser(
  db: Store | Tx,
  userId: string,
): Promise<(Org & { role: string })[]> {
  return db
    .selectFrom('members')
    .innerJoin('organizations', 'organizations.id', 'members.organizationId')
    .select(['organizations.id', 'organizations.slug', 'organizations.name', 'members.role'])
    .where('members.userId', '=', userId)
    .orderBy('members.createdAt')
    .orderBy('members.id')
    .execute()
}

/** Joins a person to an org; one who is a member keeps their role. */
export async function addMember(
  tx: Tx,
  row: { id: string; orgId: string; userId: string; role: string; now: Instant },
): Promise<void> {
  const member = await tx
    .selectFrom('members')
    .select('id')
    .where('organizationId', '=', row.orgId)
    .where('userId', '=', row.userId)
    .executeTakeFirst()
  if (member) return
  await tx
    .insertInto('members')
    .values({
      id: row.id,
      organizationId: row.orgId,
      userId: row.userId,
      role: row.role,
      createdAt: new Date(row.now),
    })
    .execute()
}

/** Whether anybody owns the org. */
export async function hasOwner(db: Store | Tx, orgId: string): Promise<boolean> {
  return (await firstOwner(db, orgId)) !== undefined
}

/** The person who has owned the org for longest. */
export async function firstOwner(db: Store | Tx, orgId: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('members')
    .select('userId')
    .where('organizationId', '=', orgId)
    .where('role', '=', 'owner')
    .orderBy('createdAt')
    .limit(1)
    .executeTakeFirst()
  return row?.userId
}

export async function findUserByEmail(
  db: Store | Tx,
  email: string,
): Promise<{ id: string } | undefined> {
  return db
    .selectFrom('users')
    .select('id')
    .where('email', '=', email.toLowerCase())
    .executeTakeFirst()
}

export type Invitation = {
  id: string
  orgId: string
  email: string
  role: string
  expiresAt: Date
}

export async function insertInvitation(
  tx: Tx,
  row: Omit<Invitation, 'expiresAt'> & { inviterId: string; expiresAt: Instant; now: Instant },
): Promise<void> {
  await tx
    .insertInto('invitations')
    .values({
      id: row.id,
      organizationId: row.orgId,
      email: row.email.toLowerCase(),
      role: row.role,
      status: 'pending',
      inviterId: row.inviterId,
      expiresAt: new Date(row.expiresAt),
      createdAt: new Date(row.now),
    })
    .execute()
}

/** The invitation while it is good, its row locked until the transaction ends. Its id is hashed at rest. */
export async function lockInvitation(
  tx: Tx,
  id: string,
  now: Instant,
): Promise<Invitation | undefined> {
  const row = await tx
    .selectFrom('invitations')
    .select(['id', 'organizationId as orgId', 'email', 'role', 'expiresAt'])
    .where('id', '=', id)
    .where('status', '=', 'pending')
    .forUpdate()
    .executeTakeFirst()
  if (!row || row.expiresAt.getTime() <= now) return undefined
  return { ...row, role: row.role ?? 'guest' }
}

export async function findInvitation(
  tx: Store | Tx,
  of: { orgId: string; id: string },
): Promise<Invitation | undefined> {
  const row = await tx
    .selectFrom('invitations')
    .select(['id', 'organizationId as orgId', 'email', 'role', 'expiresAt'])
    .where('id', '=', of.id)
    .where('organizationId', '=', of.orgId)
    .executeTakeFirst()
  return row && { ...row, role: row.role ?? 'guest' }
}

export async function burnInvitation(tx: Tx, id: string): Promise<void> {
  await tx.updateTable('invitations').set({ status: 'accepted' }).where('id', '=', id).execute()
}

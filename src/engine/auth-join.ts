// How people come to be: the first owner by a one-time link, everybody else by an invitation.
// 1. The link's row is locked while the account is made: of two at once one wins, and one that fails leaves the link good.
// 2. Both are known by their hash alone.
// 3. The account may be there already: then its password has to be right.
import type { Role } from '#api/base.ts'
import { INVITATION_MS, OWNER_LINK_MS } from '#core/access/limits.ts'
import { sha256, sha256Hex } from '#lib/bytes.ts'
import type { Clock, Instant } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import { transaction, type Store, type Tx } from '#store/connect.ts'
import { insertEvent } from '#store/events.ts'
import {
  addMember,
  burnInvitation,
  findUserByEmail,
  hasOwner,
  insertInvitation,
  lockInvitation,
} from '#store/members.ts'
import { burnSetupLink, lockSetupLink, replaceSetupLink } from '#store/setup-links.ts'

const TOKEN_BYTES = 24

export type JoinRequest = {
  by: 'owner-link' | 'invitation'
  token: string
  name: string
  email: string
  password: string
}

export type Joined = {
  userId: string
  /** What better-auth answered: it signs the person in by its cookies. */
  response: Response
}

/** Makes the account, or signs in to the one that is there; a refusal is thrown. */
export type MakeAccount = (request: {
  mode: 'sign-up' | 'sign-in'
  name: string
  email: string
  password: string
}) => Promise<Joined>

export type JoinDeps = { db: Store; clock: Clock; random: Random; platformOrgId: string }
export type From = { ip: string; requestId: string }

const mintToken = (random: Random): string =>
  Buffer.from(random.bytes(TOKEN_BYTES)).toString('base64url')

/** A link's token while nobody owns the platform; links of before end. */
export async function mintOwnerLink(deps: JoinDeps): Promise<string | undefined> {
  const { db, clock, random, platformOrgId } = deps
  if (await hasOwner(db, platformOrgId)) return undefined
  const token = mintToken(random)
  const expiresAt = clock.now() + OWNER_LINK_MS
  await replaceSetupLink(db, { tokenHash: sha256(token), expiresAt })
  return token
}

/** The id of an invitation is a hash of what its link holds. */
const invitationId = (token: string): string => `invitation_${sha256Hex(token).slice(0, 32)}`

export async function mintInvitation(
  tx: Tx,
  deps: { random: Random; now: Instant },
  row: { orgId: string; email: string; role: Role; inviterId: string },
): Promise<{ id: string; token: string; expiresAt: Instant }> {
  const token = mintToken(deps.random)
  const made = { id: invitationId(token), expiresAt: deps.now + INVITATION_MS }
  await insertInvitation(tx, { ...row, ...made, now: deps.now })
  return { ...made, token }
}

/** Joins the person that the link or invitation lets in. Errors: FORBIDDEN `LINK_ENDED`, `INVITATION_EMAIL`; INVALID. */
export async function join(
  deps: JoinDeps,
  request: JoinRequest,
  { from, account }: { from: From; account: MakeAccount },
): Promise<Response> {
  return transaction(deps.db, async (tx) => {
    const into = await lockEntry(tx, deps, request)
    const known = await findUserByEmail(tx, request.email)
    const { userId, response } = await account({
      mode: known ? 'sign-in' : 'sign-up',
      name: request.name,
      email: request.email,
      password: request.password,
    })
    const now = deps.clock.now()
    const id = newId('mem', now, deps.random)
    await addMember(tx, { id, orgId: into.orgId, userId, role: into.role, now })
    await into.burn()
    await insertEvent(tx, {
      id: newId('evt', now, deps.random),
      orgId: into.orgId,
      at: new Date(now),
      kind: 'member.joined',
      actorKind: 'user',
      actor: userId,
      ip: from.ip,
      requestId: from.requestId,
      subject: userId,
      data: { by: request.by, role: into.role },
    })
    return response
  })
}

type Entry = { orgId: string; role: string; burn: () => Promise<void> }

async function lockEntry(tx: Tx, deps: JoinDeps, request: JoinRequest): Promise<Entry> {
  const now = deps.clock.now()
  if (request.by === 'owner-link') {
    const hash = sha256(request.token)
    if (!(await lockSetupLink(tx, hash, now)))
      throw ended('This owner link is not known, was used, or has expired', 'restart the engine')
    return { orgId: deps.platformOrgId, role: 'owner', burn: () => burnSetupLink(tx, hash) }
  }
  const id = invitationId(request.token)
  const invitation = await lockInvitation(tx, id, now)
  if (!invitation)
    throw ended('This invitation is not known, was used, or has expired', 'ask for a new one')
  if (invitation.email !== request.email.toLowerCase())
    throw new AppError('FORBIDDEN', 'This invitation is for another e-mail address', {
      details: { reason: 'INVITATION_EMAIL', next: 'Use the address that the invitation was for' },
    })
  const { orgId, role } = invitation
  return { orgId, role, burn: () => burnInvitation(tx, id) }
}

const ended = (message: string, next: string): AppError =>
  new AppError('FORBIDDEN', message, {
    details: { reason: 'LINK_ENDED', next: `To get a new link, ${next}` },
  })

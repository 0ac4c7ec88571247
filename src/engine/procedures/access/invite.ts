import { invite as contract } from '#api/access.ts'
import { mintInvitation } from '#engine/auth-join.ts'
import { handleOnce } from '#engine/handle.ts'
import { AppError } from '#lib/error.ts'
import { findInvitation, firstOwner } from '#store/members.ts'

export const invite = handleOnce(contract, {
  async run(call, { email, role }) {
    const { engine, tx, orgId, caller } = call
    // The identity system keeps a person as the inviter; what a key invites is by the org's owner.
    const inviterId = caller.kind === 'user' ? caller.id : await firstOwner(tx, orgId)
    if (inviterId === undefined)
      throw new AppError('INVALID_STATE', 'The organization has no owner who could invite', {
        details: { reason: 'NO_OWNER', next: 'Open the owner link that the engine printed' },
      })
    const { id, token, expiresAt } = await mintInvitation(
      tx,
      { random: engine.random, now: engine.clock.now() },
      { orgId, email, role, inviterId },
    )
    await call.audit(tx, { kind: 'member.invited', subject: id, data: { email, role } })
    const link = `${engine.auth.url}/invitation#${token}`
    return {
      subject: id,
      answer: { id, link, expires_at: new Date(expiresAt).toISOString() },
    }
  },
  async replay({ tx, orgId }, id) {
    const invitation = await findInvitation(tx, { orgId, id })
    if (!invitation) throw new Error('invariant broken: an invitation is not there')
    const notice =
      'TOKEN_ALREADY_SHOWN: the link was shown by the first call with this Idempotency-Key. If it is lost, invite again'
    return { id, link: null, expires_at: invitation.expiresAt.toISOString(), notice }
  },
})

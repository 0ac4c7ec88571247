import { createKey as contract } from '#api/access.ts'
import { ROLES } from '#api/base.ts'
import { mintOrgKey, ORG_KEY_PREFIX } from '#engine/auth-keys.ts'
import { handleOnce } from '#engine/handle.ts'
import { orgKeyRecordOf } from '#engine/records/org-key.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import { findOrgKey, insertOrgKey } from '#store/auth-keys.ts'

const DAY_MS = 24 * 3_600_000

export const createKey = handleOnce(contract, {
  async run(call, { name, role, expiresInDays }) {
    const { engine, tx, orgId } = call
    if (ROLES.indexOf(role) > ROLES.indexOf(call.role))
      throw new AppError('FORBIDDEN', `A key may not do more than its maker, who is ${call.role}`, {
        details: { reason: 'ROLE', next: `Make a key with the role ${call.role} or a lesser one` },
      })
    const now = engine.clock.now()
    const { secret, hash } = mintOrgKey(engine.random)
    const id = newId('key', now, engine.random)
    const expiresAt = expiresInDays === undefined ? null : now + expiresInDays * DAY_MS
    await insertOrgKey(tx, { id, orgId, name, role, hash, prefix: ORG_KEY_PREFIX, expiresAt, now })
    await call.audit(tx, { kind: 'key.created', subject: id, data: { name, role } })
    const key = await findOrgKey(tx, { orgId, id })
    if (!key) throw new Error('invariant broken: a key was made and is not there')
    return { subject: id, answer: { key: orgKeyRecordOf(key), secret } }
  },
  async replay({ tx, orgId }, id) {
    const key = await findOrgKey(tx, { orgId, id })
    if (!key)
      throw new AppError('NOT_FOUND', 'The key that this Idempotency-Key made was revoked', {
        details: { reason: 'KEY_NOT_FOUND', next: 'Create a new key with a new Idempotency-Key' },
      })
    const notice =
      'TOKEN_ALREADY_SHOWN: the secret was shown by the first call with this Idempotency-Key. If it is lost, revoke the key and create another'
    return { key: orgKeyRecordOf(key), secret: null, notice }
  },
})

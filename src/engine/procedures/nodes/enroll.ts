import { enroll as contract } from '#api/nodes.ts'
import { handleOnce } from '#engine/handle.ts'
import { nodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { giveToken, TOKEN_NOTICE } from '#engine/procedures/nodes/node-token.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import { insertNode } from '#store/nodes.ts'
import { ensureDefaultPool } from '#store/sites.ts'

export const enroll = handleOnce(contract, {
  async run(call, input) {
    const { engine, tx, orgId } = call
    const now = engine.clock.now()
    const { siteId, poolId } = await ensureDefaultPool(tx, {
      orgId,
      siteId: newId('site', now, engine.random),
      poolId: newId('pool', now, engine.random),
      now,
    })
    const id = newId('node', now, engine.random)
    const made = await insertNode(tx, {
      id,
      orgId,
      nodeId: input.nodeId,
      label: input.label ?? null,
      region: input.region ?? null,
      contributor: input.contributor ?? null,
      siteId,
      poolId,
      trust: orgId === engine.auth.platformOrgId ? 'platform' : 'tenant-owned',
      trustTier: input.trustTier,
      now,
    })
    if (!made)
      throw new AppError('CONFLICT', `A node ${input.nodeId} is enrolled in this organization`, {
        details: {
          reason: 'NODE_ID_TAKEN',
          next: `Choose another nodeId, or revoke ${input.nodeId} first`,
        },
      })
    const node = await nodeOf(call, id)
    const token = await giveToken(call, node)
    const { nodeId, trustTier } = input
    await call.audit(tx, { kind: 'node.enrolled', subject: id, data: { nodeId, trustTier } })
    return { subject: id, answer: { node: nodeRecordOf(node), token } }
  },
  async replay(call, subject) {
    const node = nodeRecordOf(await nodeOf(call, subject))
    return { node, token: null, notice: TOKEN_NOTICE }
  },
})

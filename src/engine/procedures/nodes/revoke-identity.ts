import { revokeIdentity as contract } from '#api/nodes.ts'
import { handleOnce } from '#engine/handle.ts'
import { lockedNodeOf, nodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { giveToken, TOKEN_NOTICE } from '#engine/procedures/nodes/node-token.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { changeNode } from '#store/nodes.ts'

/** Key and certificates of every earlier generation end; the token binds the next key (ND-5, D36). */
export const revokeIdentity = handleOnce(contract, {
  async run(call, { id, version }) {
    const { tx, engine } = call
    const node = await lockedNodeOf(call, { id, version })
    const identityGeneration = node.identityGeneration + 1
    await changeNode(tx, node, { identityGeneration, now: engine.clock.now() })
    const token = await giveToken(call, { id: node.id, identityGeneration })
    await call.audit(tx, {
      kind: 'node.identity-revoked',
      subject: node.id,
      data: { nodeId: node.nodeId, identityGeneration },
    })
    call.afterCommit(() =>
      engine.gateway.endSession(node.id, {
        reason: 'IDENTITY_REVOKED',
        message: `The identity of ${node.nodeId} was revoked; start it with its new token`,
        retry: false,
      }),
    )
    const changed = nodeRecordOf(await nodeOf(call, node.id))
    return { subject: node.id, answer: { node: changed, token } }
  },
  async replay(call, subject) {
    const node = nodeRecordOf(await nodeOf(call, subject))
    return { node, token: null, notice: TOKEN_NOTICE }
  },
})

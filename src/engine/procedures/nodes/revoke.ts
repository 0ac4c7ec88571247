import { revoke as contract } from '#api/nodes.ts'
import { handleTx } from '#engine/handle.ts'
import { lockedNodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { changeNode } from '#store/nodes.ts'
import { releaseSlotsOfNode } from '#store/functions/slots.ts'

/** The row stays for the audit; its name is free again, and its credential never registers (ND-9, D34). */
export const revoke = handleTx(contract, async (call, { id, version }) => {
  const { tx, engine } = call
  const node = await lockedNodeOf(call, { id, version })
  const now = engine.clock.now()
  await releaseSlotsOfNode(tx, node.id)
  await changeNode(tx, node, { revokedAt: new Date(now), now })
  await call.audit(tx, {
    kind: 'node.revoked',
    subject: node.id,
    data: { nodeId: node.nodeId },
  })
  call.afterCommit(() => {
    engine.gateway.endSession(node.id, {
      reason: 'NODE_REVOKED',
      message: `The node ${node.nodeId} was revoked; enroll it again to get a new token`,
      retry: false,
    })
    engine.invoker.changed({ kind: 'node', id: node.id })
  })
  const used = { usedCpuMillis: 0, usedMemMb: 0 }
  return { node: nodeRecordOf({ ...node, ...used, version: node.version + 1 }) }
})

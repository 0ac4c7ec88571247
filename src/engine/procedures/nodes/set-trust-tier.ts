import { setTrustTier as contract } from '#api/nodes.ts'
import { handleTx } from '#engine/handle.ts'
import { lockedNodeOf, nodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { changeNode } from '#store/nodes.ts'

/** Only what the next REGISTER will make true is written: placement and what runs see nothing of it before (ND-8). */
export const setTrustTier = handleTx(contract, async (call, { id, trustTier, version }) => {
  const { tx, engine } = call
  const node = await lockedNodeOf(call, { id, version })
  const pending = trustTier === node.recordTier ? null : trustTier
  if (pending === node.pendingTrustTier) return { node: nodeRecordOf(node) }
  await changeNode(tx, node, { pendingTrustTier: pending, now: engine.clock.now() })
  await call.audit(tx, {
    kind: 'node.trust-tier-set',
    subject: node.id,
    data: { nodeId: node.nodeId, trustTier },
  })
  return { node: nodeRecordOf(await nodeOf(call, node.id)) }
})

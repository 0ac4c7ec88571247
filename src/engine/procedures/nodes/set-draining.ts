import { setDraining as contract } from '#api/nodes.ts'
import { handleTx } from '#engine/handle.ts'
import { lockedNodeOf, nodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { DRAINING, nodeRecordOf } from '#engine/records/node.ts'
import { changeNode } from '#store/nodes.ts'

/** Sets or clears one reason and nothing else (D13): what runs on the node goes on. */
export const setDraining = handleTx(contract, async (call, { id, draining, version }) => {
  const { tx, engine } = call
  const node = await lockedNodeOf(call, { id, version })
  if (draining === node.noScheduleReasons.includes(DRAINING)) return { node: nodeRecordOf(node) }
  const others = node.noScheduleReasons.filter((reason) => reason !== DRAINING)
  const noScheduleReasons = draining ? [...others, DRAINING] : others
  await changeNode(tx, node, { noScheduleReasons, now: engine.clock.now() })
  await call.audit(tx, {
    kind: draining ? 'node.draining' : 'node.resumed',
    subject: node.id,
    data: { nodeId: node.nodeId },
  })
  call.afterCommit(() => engine.invoker.changed({ kind: 'node', id: node.id }))
  return { node: nodeRecordOf(await nodeOf(call, node.id)) }
})

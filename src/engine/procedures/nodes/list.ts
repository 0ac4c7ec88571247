import { list as contract } from '#api/nodes.ts'
import { handleTx } from '#engine/handle.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { pageOf } from '#engine/records/page.ts'
import { listNodes } from '#store/nodes.ts'

export const list = handleTx(contract, async ({ tx, orgId }, { limit, cursor }) => {
  const { shown, nextCursor } = pageOf(
    await listNodes(tx, { orgId, limit: limit + 1, cursor }),
    limit,
    ({ id }) => id,
  )
  return { nodes: shown.map(nodeRecordOf), next_cursor: nextCursor }
})

// compute.placement.explain: each node with the first check that it fails, the nearest miss first (PL-3). Room that the
// function itself holds is room for it: a node that runs it can run it.
import { explain as contract } from '#api/placement.ts'
import { workloadOf } from '#core/function/workload.ts'
import { explain as explained, summary, type Workload } from '#core/placement/place.ts'
import type { PlacementNode } from '#core/node/node.ts'
import { functionByName } from '#store/functions/functions.ts'
import { heldByVersion } from '#store/functions/slots.ts'
import { placementNodes } from '#store/placement.ts'
import type { TxCall } from '#engine/call.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const explain = handleTx(contract, async (call, input) => {
  const { work, held } = await asked(call, input)
  const fleet = await placementNodes(call.tx, call.orgId)
  const nodes = explained(
    fleet.map((node) => withoutOwn(node, held)),
    work,
  )
  return {
    placeable: nodes.some(({ fit }) => fit.ok),
    summary: summary(nodes, work),
    nodes: nodes.map(({ node, fit }) => ({
      id: node.id,
      node_id: node.nodeId,
      fits: fit.ok,
      check: fit.ok ? null : fit.check,
      bucket: fit.ok ? null : fit.bucket,
      message: fit.ok ? null : fit.message,
    })),
  }
})

type Input = {
  name?: string | undefined
  runtime: Workload['runtime']
  cpuMillis: number
  memMb: number
  allowCommunity: boolean
  region?: string | undefined
}

type Held = Awaited<ReturnType<typeof heldByVersion>>

function withoutOwn(node: PlacementNode, held: Held): PlacementNode {
  const own = held.find(({ nodeRecordId }) => nodeRecordId === node.id)
  if (!own) return node
  const usedCpuMillis = node.usedCpuMillis - own.cpuMillis
  return { ...node, usedCpuMillis, usedMemMb: node.usedMemMb - own.memMb }
}

async function asked(call: TxCall, input: Input): Promise<{ work: Workload; held: Held }> {
  const { orgId } = call
  const { name, runtime, cpuMillis, memMb, allowCommunity } = input
  if (name === undefined) {
    const work = workloadOf({
      orgId,
      cpuMillis,
      memMb,
      allowCommunity,
      region: input.region ?? null,
    })
    return { work: runtime === 'wasm' ? work : { ...work, runtime, memMb }, held: [] }
  }
  const row = await functionByName(call.tx, orgId, name)
  if (!row) throw noSuchFunction(name)
  return { work: workloadOf(row), held: await heldByVersion(call.tx, row.versionId) }
}

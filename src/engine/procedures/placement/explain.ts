// compute.placement.explain: each node with the first check that it fails, the nearest miss first (PL-3).
import { explain as contract } from '#api/placement.ts'
import { workloadOf } from '#core/function/workload.ts'
import { explain as explained, summary, type Workload } from '#core/placement/place.ts'
import { functionByName } from '#store/functions/functions.ts'
import { placementNodes } from '#store/placement.ts'
import type { TxCall } from '#engine/call.ts'
import { noSuchFunction } from '#engine/functions/records.ts'
import { handleTx } from '#engine/handle.ts'

export const explain = handleTx(contract, async (call, input) => {
  const work = await workloadFor(call, input)
  const nodes = explained(await placementNodes(call.tx, call.orgId), work)
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

async function workloadFor(call: TxCall, input: Input): Promise<Workload> {
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
    return runtime === 'wasm' ? work : { ...work, runtime, memMb }
  }
  const row = await functionByName(call.tx, orgId, name)
  if (!row) throw noSuchFunction(name)
  return workloadOf(row)
}

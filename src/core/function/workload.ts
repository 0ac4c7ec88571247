// What a function's version asks of a node.
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import type { Workload } from '#core/placement/place.ts'

export type FunctionShape = {
  orgId: string
  cpuMillis: number
  /** The guest's own cap. */
  memMb: number
  allowCommunity: boolean
  region: string | null
}

/** The workload of one slot: the guest's share, and the memory of the runner around it. */
export function workloadOf(shape: FunctionShape): Workload {
  const { orgId, cpuMillis, allowCommunity, region } = shape
  const memMb = shape.memMb + RUNNER_MEM_MB
  return { orgId, runtime: 'wasm', cpuMillis, memMb, allowCommunity, region }
}

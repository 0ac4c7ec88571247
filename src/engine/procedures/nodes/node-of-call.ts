// What the verbs on one node have in common: finding it in the caller's org, and refusing a stale version (D41).
import type { TxCall } from '#engine/call.ts'
import { AppError } from '#lib/error.ts'
import { findNode, lockNode, type Node } from '#store/nodes.ts'

/** By record id or node id; NOT_FOUND for another org's as for none (D45). */
export async function nodeOf(call: TxCall, id: string): Promise<Node> {
  return (await findNode(call.tx, call.orgId, id)) ?? missing(id)
}

/** The same with its row locked, and CONFLICT when `version` is not the current one. */
export async function lockedNodeOf(
  call: TxCall,
  of: { id: string; version?: number | undefined },
): Promise<Node> {
  const node = (await lockNode(call.tx, call.orgId, of.id)) ?? missing(of.id)
  if (of.version === undefined || of.version === node.version) return node
  throw new AppError(
    'CONFLICT',
    `${node.nodeId} is at version ${node.version}; the change was made for version ${of.version}`,
    {
      details: {
        reason: 'STALE_VERSION',
        version: node.version,
        next: 'Read the node again and repeat the change with its version',
      },
    },
  )
}

function missing(id: string): never {
  throw new AppError('NOT_FOUND', `No node ${id} in this organization`, {
    details: { reason: 'NODE_NOT_FOUND', next: 'See `ccp nodes list`' },
  })
}

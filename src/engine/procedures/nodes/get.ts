import { get as contract } from '#api/nodes.ts'
import { handleTx } from '#engine/handle.ts'
import { nodeOf } from '#engine/procedures/nodes/node-of-call.ts'
import { nodeRecordOf } from '#engine/records/node.ts'
import { listCommands } from '#store/commands.ts'
import { workOfNode } from '#store/nodes.ts'

/** Lines of current work; a node with more shows the oldest. */
const WORK_MAX = 1_000
/** The newest commands, which include the last acceptance. */
const COMMANDS_MAX = 20

export const get = handleTx(contract, async (call, { id }) => {
  const { tx, orgId } = call
  const node = await nodeOf(call, id)
  const work = await workOfNode(tx, node, WORK_MAX)
  const commands = await listCommands(tx, { orgId, nodeRecordId: node.id, limit: COMMANDS_MAX })
  return {
    node: nodeRecordOf(node),
    work: work.map((one) => ({
      function: one.function,
      version: one.version,
      cpu_millis: one.cpuMillis,
      mem_mb: one.memMb,
    })),
    commands: commands.map((command) => ({
      id: command.id,
      kind: command.kind,
      state: command.state,
      output: command.output,
      created_at: command.createdAt.toISOString(),
    })),
  }
})

// Commands of a session, and what the acceptance checks among them decide (ND-24, 003-39): all passed → adopted →
// generation 1 is wanted; one failed → failed, with its output.
//
// Invariants
// 1. A command is one row and one run, whatever reconnects: it is sent again under its id, and the node knows the id.
// 2. The first end of a command counts; a result that comes after its deadline is dropped.
// 3. What a store that was away did not take is asked for again: the node answers the same.
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'
import type { FromNode } from '#protocol/messages.ts'
import { endCommand, markCommandSent, openCommands, type CommandEnd } from '#store/commands.ts'
import { transaction, type Store } from '#store/connect.ts'
import { recordNodeEvents } from '#store/sessions-events.ts'
import { acceptNode, failNode, generationWanted } from '#store/sessions.ts'
import type { NodeSession } from '#engine/gateway/node-session.ts'

export type AcceptanceDeps = {
  db: Store
  clock: Clock
  random: Random
  engineId: string
  /** Work of a session that nobody waits for: its failure is logged there, and asked for again. */
  write(session: NodeSession, what: string, work: Promise<unknown>): void
}

/** Sends what the node has not answered yet; each must be answered within its own deadline. */
export async function sendOpenCommands(deps: AcceptanceDeps, session: NodeSession): Promise<void> {
  for (const command of await openCommands(deps.db, session.facts.nodeRecordId)) {
    if (command.kind !== 'diag.wasm') continue // of a later version of the engine
    await markCommandSent(deps.db, command.id)
    const { id, kind, deadlineMs } = command
    session.send({ t: 'command', id, kind, deadlineMs })
    session.expect(id, deadlineMs, () => {
      session.send({ t: 'cancel', id })
      const output = `no answer within ${deadlineMs} ms`
      const late = ended(deps, session, { id, state: 'expired', output })
      deps.write(session, 'the end of a command was not written', late)
    })
  }
}

/** Says again what the node has not answered: for a session whose last write did not reach the store. */
export async function askAgain(deps: AcceptanceDeps, session: NodeSession): Promise<void> {
  await sendOpenCommands(deps, session)
  const generation = await generationWanted(deps.db, session.facts.nodeRecordId)
  if (generation !== undefined) session.send({ t: 'desired', generation })
}

export function takeResult(
  deps: AcceptanceDeps,
  session: NodeSession,
  result: Extract<FromNode, { t: 'command-result' }>,
): Promise<void> {
  session.settled(result.id)
  const state = result.ok ? 'succeeded' : 'failed'
  return ended(deps, session, { id: result.id, state, output: result.output })
}

async function ended(
  deps: AcceptanceDeps,
  session: NodeSession,
  end: { id: string; state: CommandEnd; output: string },
): Promise<void> {
  const { nodeRecordId } = session.facts
  const now = deps.clock.now()
  const generation = await transaction(deps.db, async (tx) => {
    const command = await endCommand(tx, { ...end, nodeRecordId, now })
    if (!command?.kind.startsWith('diag.')) return undefined
    if (end.state !== 'succeeded') {
      const failure = `${command.kind}: ${end.output}`
      const failed = await failNode(tx, { nodeRecordId, failure, now })
      if (failed)
        await recordNodeEvents(
          tx,
          [event('node.acceptance-failed', { failed: command.kind, output: end.output })],
          { now, random: deps.random },
        )
      return undefined
    }
    const accepted = await acceptNode(tx, { nodeRecordId, now })
    if (accepted)
      await recordNodeEvents(tx, [event('node.adopted', { passed: command.kind })], {
        now,
        random: deps.random,
      })
    return accepted?.generation
  })
  if (generation !== undefined) session.send({ t: 'desired', generation })

  function event(kind: 'node.adopted' | 'node.acceptance-failed', data: Record<string, unknown>) {
    const { orgId } = session.facts
    return {
      kind,
      orgId,
      nodeRecordId,
      data,
      actor: { kind: 'engine', id: deps.engineId },
    } as const
  }
}

// The opening of any connection, on the side that dialled: hello, whose statement must come from the pinned fleet root,
// then one message of ours and its answer. No secret leaves before the statement was verified.
import type { Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { parseAs } from '#protocol/codec.ts'
import type { Framed } from '#protocol/framed.ts'
import {
  Hello,
  OpeningAnswer,
  PROTOCOL_VERSIONS,
  type Join,
  type Register,
} from '#protocol/messages.ts'
import { verifyStatement, type EngineStatement, type RootPin } from '#protocol/statement.ts'

/** Hello and answer together: a gateway that admits a whole fleet makes the last ones wait. */
export const ANSWER_WITHIN_MS = 10_000

export type Greeted = {
  answer: OpeningAnswer
  statement: EngineStatement & { rootKey: string }
}

/**
 * `opening` is asked for only once the engine was recognized, and is given the version to speak. Rejects with an
 * AppError: STATEMENT_…, VERSION, MESSAGE_MALFORMED, PIPE_….
 */
export async function greet(
  framed: Framed,
  deps: { clock: Clock; pin: RootPin },
  opening: (version: number) => Register | Join,
): Promise<Greeted> {
  const stop = deps.clock.after(ANSWER_WITHIN_MS, () =>
    framed.destroy(
      new AppError('UNAVAILABLE', `the engine did not answer within ${ANSWER_WITHIN_MS} ms`, {
        details: { reason: 'NO_ANSWER' },
      }),
    ),
  )
  try {
    const hello = parseAs(Hello, await message(framed), 'hello of an engine')
    const statement = verifyStatement(hello.statement, {
      root: deps.pin,
      peer: framed.peer,
      now: deps.clock.now(),
    })
    framed.send(opening(commonVersion(hello.versions)))
    const answer = parseAs(OpeningAnswer, await message(framed), 'answer of an engine')
    return { answer, statement }
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError('UNAVAILABLE', messageOf(error), { details: { reason: 'PIPE_LOST' } })
  } finally {
    stop()
  }
}

async function message(framed: Framed): Promise<unknown> {
  const raw = await framed.next()
  if (raw !== undefined) return raw
  throw new AppError('UNAVAILABLE', 'the connection was closed', {
    details: { reason: 'PIPE_CLOSED' },
  })
}

function commonVersion(theirs: readonly number[]): number {
  const common = PROTOCOL_VERSIONS.filter((version) => theirs.includes(version))
  if (common.length > 0) return Math.max(...common)
  const ours = `this agent speaks protocol version ${PROTOCOL_VERSIONS.join(', ')}`
  // An engine is upgraded before its nodes: an older one is on its way to the new version, a newer one stays.
  const older = Math.max(0, ...theirs) < Math.min(...PROTOCOL_VERSIONS)
  throw new AppError(
    older ? 'UNAVAILABLE' : 'INVALID',
    `${ours}, and the engine serves ${theirs.join(', ') || 'none'}: upgrade the ${older ? 'engine' : 'agent'}`,
    { details: { reason: 'VERSION' } },
  )
}

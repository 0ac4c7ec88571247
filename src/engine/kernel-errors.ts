// What a caller hears of a failure. A refusal (AppError) is told as it is; anything else is INTERNAL: logged here with the
// request's id, and its message never leaves the engine.
import { ORPCError } from '@orpc/server'
import { AppError, statusOf, type Code, type ErrorDetails } from '#lib/error.ts'
import type { Logger } from '#lib/log.ts'

export type Failing = { log: Logger; requestId: string; procedure?: string }

/** The error of the contract that `error` is told as; what was not expected is logged. */
export function toContractError(error: unknown, at: Failing): ORPCError<Code, ErrorDetails> {
  if (error instanceof ORPCError && error.code === 'INTERNAL') return error
  const refusal = refusalOf(error)
  if (refusal && refusal.code !== 'INTERNAL')
    return contractError(refusal.code, refusal.message, refusal.details)
  const { requestId, procedure } = at
  at.log.error({ err: error, requestId, procedure }, 'a call failed')
  return contractError('INTERNAL', `Something went wrong in the engine (request ${requestId})`, {
    reason: 'INTERNAL',
    next: `Look for ${requestId} in the engine's log`,
  })
}

function contractError(
  code: Code,
  message: string,
  data: ErrorDetails,
): ORPCError<Code, ErrorDetails> {
  return new ORPCError(code, { defined: true, status: statusOf[code], message, data })
}

function refusalOf(error: unknown): AppError | undefined {
  if (error instanceof AppError) return error
  if (!(error instanceof ORPCError)) return undefined
  // Told already, by the kernel.
  if (isCode(error.code)) return new AppError(error.code, error.message, { details: error.data })
  // The wire's own refusals: a body that cannot be decoded, a method that the procedure has not.
  if (error.status === 404)
    return new AppError('NOT_FOUND', 'There is nothing under this path', {
      details: { reason: 'NO_SUCH_PATH', next: 'See /docs' },
    })
  if (error.status >= 400 && error.status < 500)
    return new AppError('INVALID', error.message, {
      details: { reason: 'MALFORMED_REQUEST', next: 'See /docs' },
    })
  return undefined
}

const isCode = (code: string): code is Code => code in statusOf

/** Whether the caller went away before the answer: not worth an error in the log. */
export const isGone = (error: unknown, signal: AbortSignal | undefined): boolean =>
  signal?.aborted === true && error instanceof Error && error.name === 'AbortError'

type Issue = {
  message: string
  path?: readonly (PropertyKey | { key: PropertyKey })[] | undefined
}

/** One INVALID that names every fault of every field: `details.fields` has them apart. */
export function invalidInput(issues: readonly Issue[]): AppError {
  const fields = issues.map((issue) => {
    const field = (issue.path ?? [])
      .map((part) => String(typeof part === 'object' ? part.key : part))
      .join('.')
    const named = field === '' || issue.message.includes(field.split('.')[0] ?? '')
    return { field, message: named ? issue.message : `${field}: ${issue.message}` }
  })
  // One a field (FN-1): a number beyond what is exact breaks two rules with one word for both.
  const once = new Map(fields.map((fault) => [`${fault.field} ${fault.message}`, fault]))
  const said = [...new Set(fields.map(({ message }) => message))]
  return new AppError('INVALID', said.join('; '), {
    details: {
      reason: 'INVALID_INPUT',
      fields: [...once.values()],
      next: 'Correct these fields and send it again',
    },
  })
}

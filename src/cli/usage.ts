// What stricli says when a command line cannot be read: one line each, never a stack.
import {
  AliasNotFoundError,
  ArgumentParseError,
  FlagNotFoundError,
  text_en,
  UnsatisfiedPositionalError,
  type ApplicationText,
} from '@stricli/core'
import { EXIT, failureOf, failureText, Interrupted } from '#cli/failure.ts'
import { AppError, messageOf } from '#lib/error.ts'

/** `name` of the program and the route, for the hint: 'ccp nodes enroll'. */
export const texts = (onFailure: (error: unknown) => void): ApplicationText => ({
  ...text_en,
  exceptionWhileParsingArguments: (error) => tell(usage(parseFault(error)), onFailure),
  exceptionWhileRunningCommand: (error) => tell(error, onFailure),
  exceptionWhileLoadingCommandFunction: (error) => tell(error, onFailure),
  exceptionWhileLoadingCommandContext: (error) => tell(error, onFailure),
  commandErrorResult: (error) => tell(error, onFailure),
  noCommandRegisteredForInput: ({ input, corrections }) =>
    tell(
      usage(
        `there is no command '${input}'${corrections.length === 0 ? '' : `; did you mean ${corrections.join(', or ')}?`}`,
      ),
      onFailure,
    ),
})

function parseFault(error: unknown): string {
  if (error instanceof FlagNotFoundError) {
    const near = error.corrections.map((name) => `--${kebab(name)}`)
    const hint = near.length === 0 ? GUEST_HINT : `, did you mean ${near.join(' or ')}?`
    return `there is no flag --${error.input}${hint}`
  }
  if (error instanceof AliasNotFoundError) return `there is no flag -${error.input}${GUEST_HINT}`
  if (error instanceof UnsatisfiedPositionalError) return `<${error.placeholder}> is missing`
  if (error instanceof ArgumentParseError)
    return `${error.externalFlagNameOrPlaceholder}: ${messageOf(error.exception)}`
  return messageOf(error)
}

const GUEST_HINT = "; what is meant for a function goes after --, as in 'invoke NAME -- -w'"

const kebab = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

const usage = (message: string): AppError =>
  new AppError('INVALID', message, {
    details: {
      reason: 'USAGE',
      next: '--help after any command shows what it takes',
      exitCode: EXIT.usage,
    },
  })

function tell(error: unknown, onFailure: (error: unknown) => void): string {
  onFailure(error)
  return error instanceof Interrupted ? 'interrupted' : failureText(failureOf(error))
}

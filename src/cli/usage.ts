// What stricli says when a command line cannot be read: one line each, never a stack.
import { text_en, type ApplicationText } from '@stricli/core'
import { failureOf, failureText, Interrupted } from '#cli/failure.ts'
import { messageOf } from '#lib/error.ts'

/** `name` of the program and the route, for the hint: 'ccp nodes enroll'. */
export const texts = (onFailure: (error: unknown) => void): ApplicationText => ({
  ...text_en,
  exceptionWhileParsingArguments: (error) => usageLine(messageOf(error)),
  exceptionWhileRunningCommand: (error) => tell(error, onFailure),
  exceptionWhileLoadingCommandFunction: (error) => tell(error, onFailure),
  exceptionWhileLoadingCommandContext: (error) => tell(error, onFailure),
  commandErrorResult: (error) => tell(error, onFailure),
  noCommandRegisteredForInput: ({ input, corrections }) =>
    usageLine(
      `there is no command '${input}'${corrections.length === 0 ? '' : `; did you mean ${corrections.join(', or ')}?`}`,
    ),
})

const usageLine = (message: string): string =>
  `USAGE: ${message}\n  → --help after any command shows what it takes`

function tell(error: unknown, onFailure: (error: unknown) => void): string {
  onFailure(error)
  return error instanceof Interrupted ? 'interrupted' : failureText(failureOf(error))
}

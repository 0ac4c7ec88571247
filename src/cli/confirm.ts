// The question before something that cannot be undone.
import type { Cli } from '#cli/cli.ts'
import { EXIT } from '#cli/failure.ts'

/** True when `--yes` was given, nobody can be asked (D9), or the person agreed. Else the command ends with 1. */
export async function confirmed(
  cli: Pick<Cli, 'ask' | 'out' | 'process'>,
  sure: boolean | undefined,
  question: string,
): Promise<boolean> {
  if (sure || (await cli.ask.confirm(question))) return true
  cli.out.note('Nothing was done.')
  cli.process.exitCode = EXIT.failed
  return false
}

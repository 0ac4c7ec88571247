// All that a command touches outside itself: one flat record, built in run.ts and in tests, nowhere else (rule 4).
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'
import type { Api } from '#cli/call.ts'
import type { Output } from '#cli/output.ts'
import type { Prompts } from '#cli/prompt.ts'
import type { Settings } from '#cli/settings.ts'
import type { Target } from '#cli/target.ts'

export type CliProcess = {
  readonly stdout: NodeJS.WriteStream
  readonly stderr: NodeJS.WriteStream
  readonly stdin: NodeJS.ReadStream
  readonly env: Readonly<Record<string, string | undefined>>
}

export type Cli = {
  readonly process: CliProcess & { exitCode?: number | string | null }
  /** The folder of the checkout or package: where `bin/` and `src/bin/` are. */
  readonly root: string
  readonly version: string
  readonly uid: number
  readonly settings: Settings
  readonly clock: Clock
  readonly random: Random
  readonly out: Output
  readonly ask: Prompts
  /** Aborted by Ctrl-C, with `Interrupted`. */
  readonly signal: AbortSignal
  /** Which engine is called, and as whom. Settled at the first use. */
  target(): Promise<Target>
  /** The typed client. Loaded at the first use, so that `--help` stays fast. */
  api(): Promise<Api>
}

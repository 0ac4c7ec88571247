// One run of `ccp`: builds the record that commands use, reads the command line, settles the exit code.
import { ExitCode, run } from '@stricli/core'
import { buildApp } from '#cli/app.ts'
import type { Cli, CliProcess } from '#cli/cli.ts'
import { EXIT, failureJson, failureOf, Interrupted } from '#cli/failure.ts'
import { createOutput } from '#cli/output.ts'
import { createPrompts } from '#cli/prompt.ts'
import { readSettings, type Settings } from '#cli/settings.ts'
import type { Target } from '#cli/target.ts'
import type { Api } from '#cli/call.ts'
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'

export type Given = {
  process: CliProcess
  argv: readonly string[]
  root: string
  version: string
  uid: number
  clock: Clock
  random: Random
  /** Aborted with `Interrupted` by Ctrl-C. */
  signal: AbortSignal
}

/** Answers the exit code. */
export async function runCcp(given: Given): Promise<number> {
  const { stdin, stdout, env } = given.process
  const settings = readSettings(env, { stdin: stdin.isTTY, stdout: stdout.isTTY })
  const cli = createCli(given, settings)
  let failed: unknown
  const app = buildApp(given.version, settings.colour, (error) => {
    failed = error
  })
  await run(app, given.argv, cli)
  const code = exitCodeOf(cli.process.exitCode)
  if (failed === undefined) return code
  if (failed instanceof Interrupted || given.signal.aborted) return EXIT.interrupted
  const failure = failureOf(failed)
  if (wantsJson(given.argv)) cli.out.json(failureJson(failure))
  return code === EXIT.failed || code === EXIT.usage ? failure.exitCode : EXIT.failed
}

function createCli(given: Given, settings: Settings): Cli {
  const { root, version, signal, clock, random } = given
  const { stdin, stdout, stderr, env } = given.process
  let target: Promise<Target> | undefined
  let api: Promise<Api> | undefined
  const cli: Cli = {
    // A process of its own for stricli and the commands: they set the exit code of this run, not of the program.
    process: { stdin, stdout, stderr, env },
    root,
    version,
    uid: given.uid,
    settings,
    clock,
    random,
    out: createOutput({ stdout, stderr }, settings.colour),
    ask: createPrompts(settings, stderr, signal),
    signal,
    target: () => (target ??= loadTarget(cli)),
    api: () => (api ??= loadApi(cli)),
  }
  return cli
}

async function loadTarget(cli: Cli): Promise<Target> {
  const { findTarget } = await import('#cli/target.ts')
  return findTarget(cli.settings, cli.uid)
}

async function loadApi(cli: Cli): Promise<Api> {
  const [{ createApi }, target] = await Promise.all([import('#cli/call.ts'), cli.target()])
  const { version, clock, random, signal } = cli
  return createApi({ target, version, clock, random, signal })
}

/** The flag, unless it stands behind `--` and belongs to somebody else. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--')
  return argv.slice(0, end === -1 ? undefined : end).includes('--json')
}

function exitCodeOf(code: number | string | null | undefined): number {
  const usage: unknown[] = [ExitCode.UnknownCommand, ExitCode.InvalidArgument]
  if (usage.includes(code)) return EXIT.usage
  return typeof code === 'number' && code >= 0 ? code : EXIT.failed
}

import { readFile } from 'node:fs/promises'
import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { EXIT, exitingWith, unreadable } from '#cli/failure.ts'
import { common, docs, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { STDERR_MAX, STDIN_MAX, STDOUT_MAX } from '#core/function/limits.ts'
import { formatBytes } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'

type Flags = CommonFlags & {
  readonly stdin?: string
  readonly env?: readonly string[]
  readonly timeoutMs?: number
}

type Result = Awaited<ReturnType<Awaited<ReturnType<Cli['api']>>['compute']['functions']['invoke']>>

export const invoke = buildCommand<Flags, [name: string, ...args: string[]], Cli>({
  docs: docs({
    brief: 'Run a function once and print its output',
    more: 'stdout and stderr are the function’s own, byte for byte. With --json the whole result is printed instead.',
    examples: [
      'ccp functions invoke word-count --stdin README.md',
      'echo hello | ccp functions invoke word-count --stdin - -- -w',
      'ccp functions invoke report --env REGION=eu --timeout-ms 60000 --json',
    ],
    exitCodes:
      'the function’s own when it exited · 124 timed out · 1 anything of ours, with CODE: on stderr · 2 the command line could not be read',
  }),
  parameters: {
    positional: {
      kind: 'array',
      minimum: 1,
      parameter: {
        parse: String,
        placeholder: 'name [-- args]',
        brief: 'The function’s name, then what it gets as arguments',
      },
    },
    flags: {
      ...common,
      stdin: text('A file, or - for this command’s own stdin', 'file|-'),
      env: {
        kind: 'parsed',
        parse: String,
        brief: 'A variable of the function; repeat it for more',
        placeholder: 'K=V',
        variadic: true,
        optional: true,
      },
      timeoutMs: number('Wall time in ms, 1–900000 (default: the function’s own)'),
    },
    aliases: { e: 'env' },
  },
  async func(flags, name, ...args) {
    const result = await run(this, flags, name, args).catch((error: unknown) => {
      // D28: 77 and the like belong to the guest here.
      throw exitingWith(error, EXIT.failed)
    })
    if (flags.json) this.out.json(result)
    else print(this, result)
    this.process.exitCode = exitCodeOf(result)
  },
})

async function run(cli: Cli, flags: Flags, name: string, args: string[]): Promise<Result> {
  const { orgId, stdin, env, timeoutMs } = flags
  const variables = parseEnv(env ?? [])
  const input = await readStdin(cli, stdin)
  const org = await resolveOrg(cli, orgId)
  const progress = await cli.ask.progress(`Running ${name}`)
  return (await cli.api()).compute.functions
    .invoke({
      orgId: org,
      name,
      args,
      env: variables,
      ...(input === undefined ? {} : { stdinBase64: input.toString('base64') }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    })
    .finally(() => progress.done())
}

/** D28: the guest's own code when it exited; a timeout is 124; the rest is ours. */
export function exitCodeOf(result: Pick<Result, 'ok' | 'exitCode' | 'reason'>): number {
  if (result.exitCode !== null) return result.exitCode
  if (result.ok) return EXIT.ok
  return result.reason === 'timeout' ? EXIT.timedOut : EXIT.failed
}

function print(cli: Cli, result: Result): void {
  cli.out.raw('stdout', bytesOf(result.stdout, result.stdoutBase64))
  cli.out.raw('stderr', bytesOf(result.stderr, result.stderrBase64))
  if (result.stdoutTruncated)
    cli.out.note(`TRUNCATED: stdout was cut at ${formatBytes(STDOUT_MAX)}`)
  if (result.stderrTruncated)
    cli.out.note(`TRUNCATED: stderr was cut at ${formatBytes(STDERR_MAX)}`)
  if (!result.ok && result.exitCode === null)
    cli.out.note(`${result.reason ?? 'failed'}: ${result.error ?? 'the invocation failed'}`)
}

const bytesOf = (text: string, base64: string | undefined): Buffer =>
  base64 === undefined ? Buffer.from(text, 'utf8') : Buffer.from(base64, 'base64')

/** Errors: INVALID naming what is no K=V. */
export function parseEnv(pairs: readonly string[]): Record<string, string> {
  const env: Record<string, string> = {}
  for (const pair of pairs) {
    const at = pair.indexOf('=')
    if (at < 1)
      throw new AppError('INVALID', `--env '${pair}' is not of the form K=V`, {
        details: { reason: 'INVALID_ENV', next: 'Write it like --env LOG_LEVEL=info' },
      })
    env[pair.slice(0, at)] = pair.slice(at + 1)
  }
  return env
}

async function readStdin(cli: Cli, from: string | undefined): Promise<Buffer | undefined> {
  if (from === undefined) return undefined
  const bytes = from === '-' ? await collect(cli.process.stdin) : await readInput(from)
  if (bytes.length > STDIN_MAX)
    throw new AppError(
      'TOO_LARGE',
      `stdin has ${formatBytes(bytes.length)}; an invocation takes at most ${formatBytes(STDIN_MAX)}`,
    )
  return bytes
}

async function collect(stream: NodeJS.ReadStream): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of stream) {
    const bytes = Buffer.from(chunk)
    chunks.push(bytes)
    length += bytes.length
    if (length > STDIN_MAX) break
  }
  return Buffer.concat(chunks)
}

function readInput(file: string): Promise<Buffer> {
  return readFile(file).catch((error: unknown) => {
    throw unreadable(file, error, '--stdin takes a file, or - for this command’s own')
  })
}

// compute.functions.invoke: one run of the current version, collected (FN-3, D42). No input names a node (PL-6).
import { invoke as contract } from '#api/functions.ts'
import { answerOf, textOf } from '#core/function/answer.ts'
import { ARGS_ENV_BYTES_MAX, STDIN_MAX } from '#core/function/limits.ts'
import { formatBytes, fromBase64 } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { handle } from '#engine/handle.ts'

export const invoke = handle(contract, async (call, input) => {
  const { name, args, env, timeoutMs } = input
  checkSpace(args, env)
  const invoked = await call.engine.invoker.invoke({
    orgId: call.orgId,
    name,
    args,
    env,
    stdin: stdinOf(input),
    timeoutMs,
    signal: call.signal,
  })
  const { node } = invoked
  const stdout = textOf(invoked.stdout, invoked.stdoutTruncated)
  const stderr = textOf(invoked.stderr, invoked.stderrTruncated)
  const { ok, exitCode, ...failure } = answerOf(invoked.outcome)
  return {
    ok,
    exitCode,
    durationMs: rounded(invoked.durationMs),
    ...failure,
    stdout: stdout.text,
    stderr: stderr.text,
    ...(stdout.exact ? {} : { stdoutBase64: toBase64(invoked.stdout) }),
    ...(stderr.exact ? {} : { stderrBase64: toBase64(invoked.stderr) }),
    stdoutTruncated: invoked.stdoutTruncated,
    stderrTruncated: invoked.stderrTruncated,
    fuelUsed: invoked.fuelUsed,
    memPeakMb: invoked.memPeakMb === null ? null : rounded(invoked.memPeakMb),
    node_id: node?.nodeId ?? null,
    trust_tier: node?.trustTier ?? null,
  }
})

/** To a hundredth. */
const rounded = (value: number): number => Math.round(value * 100) / 100

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64')

function stdinOf(input: { stdin?: string | undefined; stdinBase64?: string | undefined }): Buffer {
  const { stdin, stdinBase64 } = input
  if (stdin !== undefined && stdinBase64 !== undefined)
    throw invalid('stdinBase64', 'stdin and stdinBase64 are both given: send one of them')
  const bytes = stdinBase64 === undefined ? Buffer.from(stdin ?? '') : fromBase64(stdinBase64)
  if (!bytes) throw invalid('stdinBase64', 'stdinBase64 is not base64')
  if (bytes.length > STDIN_MAX)
    throw new AppError(
      'TOO_LARGE',
      `stdin has ${formatBytes(bytes.length)}; at most ${formatBytes(STDIN_MAX)} are taken`,
      { details: { reason: 'STDIN_TOO_LARGE', field: 'stdin', bytesMax: STDIN_MAX } },
    )
  return bytes
}

/** Arguments and variables are C strings in most languages, and travel in one message. */
function checkSpace(args: readonly string[], env: Readonly<Record<string, string>>): void {
  if (args.some((arg) => arg.includes('\0'))) throw invalid('args', 'args may not contain NUL')
  if (Object.values(env).some((value) => value.includes('\0')))
    throw invalid('env', 'env may not contain NUL')
  const all = [...args, ...Object.entries(env).flat()]
  const bytes = all.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  if (bytes > ARGS_ENV_BYTES_MAX)
    throw invalid(
      'args',
      `args and env have ${bytes} bytes together; at most ${ARGS_ENV_BYTES_MAX} are taken: send more as stdin`,
    )
}

const invalid = (field: string, message: string): AppError =>
  new AppError('INVALID', message, { details: { reason: 'INVALID_INPUT', field } })

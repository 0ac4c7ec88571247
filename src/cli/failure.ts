// How a failure is told: `CODE: message` and the next step on stderr, an exit code, and one JSON object under --json.
import { AppError, messageOf, type Code } from '#lib/error.ts'

/** CP-10, and 130 for Ctrl-C as shells have it. */
export const EXIT = { ok: 0, failed: 1, usage: 2, signedOut: 77, timedOut: 124, interrupted: 130 }

export type Failure = {
  /** What is printed before the colon: the finer reason when there is one (D52). */
  code: string
  message: string
  /** Further faults, one a line. */
  also: string[]
  next: string | undefined
  exitCode: number
  /** The closed code, for programs. */
  kind: Code
}

/** The person pressed Ctrl-C: nothing to explain. */
export class Interrupted extends Error {}

export function failureOf(error: unknown): Failure {
  if (error instanceof AppError) {
    const { reason, next, also, exitCode } = error.details
    return {
      code: reason ?? error.code,
      message: messageOf(error),
      also: Array.isArray(also) ? also.map(String) : [],
      next,
      exitCode: typeof exitCode === 'number' ? exitCode : usualExit(error.code),
      kind: error.code,
    }
  }
  const message = messageOf(error)
  return { code: 'INTERNAL', message, also: [], next: undefined, exitCode: 1, kind: 'INTERNAL' }
}

const usualExit = (code: Code): number =>
  code === 'UNAUTHENTICATED' ? EXIT.signedOut : EXIT.failed

/** The same refusal with another exit code. */
export function exitingWith(error: unknown, exitCode: number): unknown {
  if (!(error instanceof AppError)) return error
  const details = { ...error.details, exitCode }
  return new AppError(error.code, error.message, { cause: error.cause, details })
}

/** A file that the person named and that cannot be read: what is wrong with it in words, not the system's code. */
export function unreadable(file: string, error: unknown, next: string): AppError {
  const code = error instanceof Error && 'code' in error ? error.code : ''
  const why: Record<string, string> = {
    ENOENT: `there is no file ${file}`,
    EISDIR: `${file} is a folder`,
    EACCES: `you may not read ${file}`,
  }
  const message = why[String(code)] ?? `${file} cannot be read: ${messageOf(error)}`
  return new AppError('INVALID', message, { details: { reason: 'UNREADABLE_FILE', next } })
}

/** Lines for stderr, without a line end. */
export function failureText(failure: Failure): string {
  const lines = [`${failure.code}: ${failure.message}`, ...failure.also.map((text) => `  ${text}`)]
  if (failure.next !== undefined) lines.push(`  → ${failure.next}`)
  return lines.join('\n')
}

/** The object that --json prints on stdout instead of a result. */
export function failureJson({ kind, code, message, also, next }: Failure): object {
  return { error: { code: kind, reason: code, message, also, next: next ?? null } }
}

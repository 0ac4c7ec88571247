// What a child sends in JSON, read in its parent.
// 1. A guest may have broken out into its child: nothing that comes from there is taken on trust, and what our own
//    program would not say is a violation, for which the child is killed.
import { z } from 'zod'
import type { GuestResult, PrepareResult } from '#wasm/child/frames.ts'

/** The longest of ours names what a component asks for. */
const MESSAGE_CHARS_MAX = 8192
/** Memories and tables take memMb at most, of which the most is 4 GiB. */
const MEM_BYTES_MAX = 4 * 1024 ** 3
/** Whole milliseconds of this many are 24 days: no invocation may run so long. */
const DURATION_MS_MAX = 2 ** 31 - 1

const message = z
  .string()
  .max(MESSAGE_CHARS_MAX)
  // Terminals obey these, and readers are misled by some.
  .transform((text) =>
    text.replaceAll(/[^\P{C}\n]/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`),
  )

const measured = {
  durationMs: z.number().min(0).max(DURATION_MS_MAX),
  memPeakBytes: z.int().min(0).max(MEM_BYTES_MAX),
  fuelUsed: z.int().min(0).nullable(),
  last: z.boolean(),
  stdoutTruncated: z.boolean(),
  stderrTruncated: z.boolean(),
}

const result = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('exited'), exitCode: z.int().min(0).max(255), ...measured }),
  z.strictObject({ kind: z.enum(['trap', 'memory', 'fuel', 'fault']), message, ...measured }),
])

const prepared = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), kind: z.enum(['component', 'preview1']) }),
  z.strictObject({ ok: z.literal(false), reason: z.string().regex(/^[A-Z0-9_]{1,64}$/), message }),
])

const loaded = z.strictObject({ error: message.optional() })

function read<T>(what: string, schema: z.ZodType<T>, payload: Buffer): T {
  let value: unknown
  try {
    value = JSON.parse(payload.toString('utf8'))
  } catch {
    throw new Error(`a ${what} that is no JSON`)
  }
  const found = schema.safeParse(value)
  if (found.success) return found.data
  const [issue] = found.error.issues
  throw new Error(`a ${what} whose ${issue?.path.join('.') || 'form'} is wrong`)
}

/** Throws on what is no GuestResult. Text in it is printable. */
export const readResult = (payload: Buffer): GuestResult => read('result', result, payload)

/** Why the artifact did not load; undefined when it did. Throws on another form. */
export const readLoaded = (payload: Buffer): string | undefined =>
  read('loaded', loaded, payload).error

/** Throws on what is no PrepareResult. */
export const readPrepared = (payload: Buffer): PrepareResult => read('result', prepared, payload)

// The closed set of codes that a caller can act on (D52). Anything else is INTERNAL and only logged.

/** HTTP status by code. */
export const statusOf = {
  INVALID: 400,
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  CONFLICT: 409,
  INVALID_STATE: 409,
  TOO_LARGE: 413,
  RATE_LIMITED: 429,
  QUOTA_EXCEEDED: 429,
  INTERNAL: 500,
  UNAVAILABLE: 503,
} as const

export type Code = keyof typeof statusOf

/**
 * `reason` is the finer name that the CLI prints before the colon: UPPER_SNAKE (`KEY_MISMATCH`), but for the seeds' own
 * (`store_unavailable`);
 * `next` is what the person can do about it. Never put a secret into any of them.
 */
export type ErrorDetails = { reason?: string; next?: string; [key: string]: unknown }

/** A refusal: what was wrong, with which value, and what would be right. */
export class AppError extends Error {
  readonly code: Code
  readonly details: ErrorDetails

  constructor(code: Code, message: string, options?: { cause?: unknown; details?: ErrorDetails }) {
    super(message, options?.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.details = options?.details ?? {}
  }
}

/** The text of whatever was thrown, with its causes: 'a: b: c'. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause === undefined ? error.message : `${error.message}: ${messageOf(error.cause)}`
}

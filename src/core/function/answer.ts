// How an invocation ended, as the caller hears it (D42): `error` is text and there if and only if it failed,
// `reason` is the kind, `exitCode` is the guest's own and null unless the guest exited.

export const REASONS = [
  'trap',
  'memory',
  'timeout',
  'fuel',
  'exit',
  'no-node',
  'node-lost',
  'node-fault',
] as const
export type Reason = (typeof REASONS)[number]

/** The node's report, or why there is none. */
export type End =
  | { kind: 'exited'; exitCode: number }
  | { kind: 'trap'; message: string }
  | { kind: 'memory'; message: string }
  | { kind: 'timeout'; message: string }
  | { kind: 'fuel'; message: string }
  | { kind: 'cancelled' }
  | { kind: 'fault'; message: string }
  | { kind: 'no-node'; message: string }
  | { kind: 'node-lost'; message: string }

export type Answer =
  | { ok: true; exitCode: 0 }
  | { ok: false; exitCode: number | null; error: string; reason?: Reason }

const failed = (reason: Reason, error: string): Answer => ({
  ok: false,
  exitCode: null,
  // An empty message of a node must not make a failure look like none.
  error: error === '' ? reason : error,
  reason,
})

export function answerOf(end: End): Answer {
  switch (end.kind) {
    case 'exited': {
      const { exitCode } = end
      if (exitCode === 0) return { ok: true, exitCode: 0 }
      return { ok: false, exitCode, error: `exited with code ${exitCode}`, reason: 'exit' }
    }
    case 'cancelled':
      // Only a caller that has gone away cancels, so nobody reads this but the history.
      return { ok: false, exitCode: null, error: 'cancelled: the caller went away' }
    case 'fault':
      return failed('node-fault', end.message)
    case 'trap':
    case 'memory':
    case 'timeout':
    case 'fuel':
    case 'no-node':
    case 'node-lost':
      return failed(end.kind, end.message)
  }
}

export type Text = {
  text: string
  /** Whether the text is all of the bytes, exactly. */
  exact: boolean
}

/** UTF-8 as text, with U+FFFD for what is none; a character that the cap cut in two is left out. */
export function textOf(bytes: Uint8Array, truncated: boolean): Text {
  try {
    return {
      text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes),
      exact: true,
    }
  } catch {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    return { text: decoder.decode(bytes, { stream: truncated }), exact: false }
  }
}

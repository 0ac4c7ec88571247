// Limits of functions. Each with its reason; the reference page is generated from these.

/** Seed 000, "Resource requests". */
export const CPU_MILLIS = { min: 100, max: 16_000, default: 1_000 }
/** Seed 000, "Resource requests". */
export const MEM_MB = { min: 16, max: 4_096, default: 64 }
/** D44. */
export const TIMEOUT_MS = { min: 1, max: 900_000, default: 30_000 }
/** D44: fuel of one invocation; what a JSON number holds exactly. Unset: as much as the time allows. */
export const FUEL_MAX = { min: 1, max: Number.MAX_SAFE_INTEGER }
/** FN-1: bytes sent ahead of a deploy, streamed. */
export const UPLOAD_BYTES_MAX = 64 * 1024 * 1024
/** FN-1: uploads that one engine takes at a time. */
export const UPLOADS_AT_ONCE = 2
/** Bytes sent ahead that no version uses are dropped after this. */
export const UPLOAD_KEPT_MS = 86_400_000
/** Uploads of one org that no version uses: at most 2 GiB of bytes; the newest stay. */
export const UPLOADS_KEPT_MAX = 32
/** AC-6: an org's invocations under way or waiting at one engine, unless its quota says otherwise. */
export const INVOCATIONS_AT_ONCE = 1_000
/** AC-6: what an operator may set; above it one engine's connections end first. */
export const INVOCATIONS_AT_ONCE_RANGE = { min: 1, max: 10_000 }
/** FN-1: inline bytes, decoded; base64 in JSON of more than this holds the main thread too long. */
export const COMPONENT_INLINE_MAX = 8 * 1024 * 1024
/** FN-3: what an answer keeps of each stream; the guest runs on. */
export const STDOUT_MAX = 1024 * 1024
export const STDERR_MAX = 256 * 1024
/** FN-9: stdout that `/fn` holds back before it says how the invocation went. */
export const FN_HEAD_MAX = 64 * 1024
/** D51: a larger answer of an invocation is not kept with its Idempotency-Key; an org's calls of a day are many. */
export const ANSWER_KEPT_MAX = 256 * 1024
/** One invocation's input travels in one message of the API. */
export const STDIN_MAX = 8 * 1024 * 1024
/** Arguments and variables of one invocation, like a process's: bounded so that a header fits one frame. */
export const ARGS_MAX = 256
export const ENV_MAX = 256
export const ARG_LENGTH_MAX = 16_384
/** The sum of both, in bytes: one framed message holds it with room to spare. */
export const ARGS_ENV_BYTES_MAX = 128 * 1024
/** D43: how long an invocation waits for room when some enrolled node could run it. */
export const WAIT_FOR_ROOM_MS = 10_000
/** FN-7: history is kept this long. */
export const HISTORY_KEPT_MS = 7 * 86_400_000
/** FN-7: a crash may lose this much history. */
export const HISTORY_FLUSH_MS = 200
/** A slot without an invocation for this long gives its atoms back. */
export const SLOT_IDLE_MS = 60_000
/**
 * The runner's own memory, booked beside the guest's. Measured, without the file pages that Node's processes share: 11 MB
 * at start, 15 to 25 with its heap, 32 for code and for finished instances that wait for their collection.
 */
export const RUNNER_MEM_MB = 64
/** How long a preparation may take: 12 MB take 2.3 s at first (measured), on a busy machine ten times that. */
export const PREPARE_DEADLINE_MS = 60_000
/** Versions of a function that are kept for a rollback; the current one always is. */
export const VERSIONS_KEPT = 20

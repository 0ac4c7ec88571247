// Limits of people, keys and the record of what they did. Each with its reason; the reference page is generated from these.

/** A sign-in that is used lives on; one that is not ends after this. */
export const SIGN_IN_MS = 7 * 24 * 3_600_000
/** The longer bound: hashing a text of any length would cost whatever a stranger likes. */
export const PASSWORD_LENGTH = { min: 10, max: 128 }
/** Printed at the engine's start: it should not lie in a log for ever. */
export const OWNER_LINK_MS = 24 * 3_600_000
/** AC-5: long enough for a week's holiday. */
export const INVITATION_MS = 7 * 24 * 3_600_000
/** 000-75, design §5: how long another engine may believe a key that was revoked. */
export const KEY_CACHED_MS = 10_000
/** API keys of a list: an org with more than a person can look through revokes some. */
export const KEYS_LISTED_MAX = 1_000
/** Audit events older than this are pruned. */
export const EVENTS_KEPT_MS = 90 * 86_400_000
/** D51: idempotency keys are kept this long. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000

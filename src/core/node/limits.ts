// Limits of nodes and their sessions. Each with its reason; the reference page is generated from these.

/** D18: beats follow the fleet's size so that an engine receives at most 1,000 a second. */
export const HEARTBEAT_MS = { small: 1_000, medium: 5_000, large: 10_000 }
/** D18: below this many nodes an engine, the small interval; below the next, the medium one. */
export const FLEET_SMALL = 1_000
export const FLEET_MEDIUM = 5_000
/** D18: a node that misses this many acknowledgements redials at once. */
export const ACKS_MISSED_MAX = 3
/** NODE_UNREACHABLE_AFTER (D18): silence after which a node is unreachable; at least three beats. */
export const UNREACHABLE_AFTER_MS = 20_000
/** An engine whose beat stood still this long, by the observer's own monotonic time, is dead: its sessions are over. */
export const ENGINE_DEAD_AFTER_MS = 10_000
/** ND-4: a dial is dropped after this. */
export const DIAL_TIMEOUT_MS = 3_000
/** ND-4: in the first minute failed dials back off to this, so that a restarted engine is found at once. */
export const DIAL_BACKOFF_EARLY_MS = 2_000
/** ND-4: later they back off to this. */
export const DIAL_BACKOFF_MAX_MS = 60_000
export const DIAL_EARLY_MS = 60_000
/** §7: what an unregistered connection may take. */
export const REGISTER_WITHIN_MS = 5_000
/** AC-3: unregistered connections an address. */
export const UNREGISTERED_PER_ADDRESS_MAX = 64
/** §7: a ticket for a data pipe works once, this long. */
export const TICKET_MS = 10_000
/** §7: an idle data pipe closes after this. */
export const PIPE_IDLE_MS = 60_000
/** ND-5: a node certificate's life; it is renewed at half of it. */
export const CERTIFICATE_MS = 24 * 3_600_000
/** `last_seen_at` is flushed in one batched update this often. */
export const LAST_SEEN_FLUSH_MS = 10_000
/** Free text stays readable in a row. */
export const LABEL_MAX = 200
export const REGION_MAX = 63
/** Nodes of a list page. */
export const NODES_PAGE_MAX = 1_000
/** How long an acceptance command may take: a child process and a 100-byte module, on a busy laptop. */
export const ACCEPTANCE_DEADLINE_MS = 30_000

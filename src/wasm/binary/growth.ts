// Names of what the preparer appends to every core module's exports, so that a runner can tell a guest that was
// refused memory from one that merely trapped, and read its peak.
import { RESERVED_PREFIX } from '#wasm/binary/core-module.ts'

/** A mutable i32 global: 1 once a `memory.grow` was refused. */
export const GROWTH_REFUSED = `${RESERVED_PREFIX}growth-refused`

/**
 * A table of one function: `(delta: i32) → i32`, 1 when the guest may grow by so many pages. While it is empty (before
 * the host has the instance: in its start function) nobody is asked.
 */
export const GRANT = `${RESERVED_PREFIX}grant`

/** The n-th memory that the module defines itself. */
export const memoryExport = (n: number): string => `${RESERVED_PREFIX}memory.${n}`

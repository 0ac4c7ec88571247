// Names of what the preparer appends to every core module's exports, so that a runner can tell a guest that was
// refused memory from one that merely trapped, and read its peak.
import { RESERVED_PREFIX } from '#wasm/binary/core-module.ts'

/** A mutable i32 global: 1 once a `memory.grow` was refused. */
export const GROWTH_REFUSED = `${RESERVED_PREFIX}growth-refused`

/** The n-th memory that the module defines itself. */
export const memoryExport = (n: number): string => `${RESERVED_PREFIX}memory.${n}`

// What metered code and its host agree on: the globals that all core modules of one invocation share, and the schedule.
// 1. The numbers here and in instruction-set.ts are fuel schedule 1: a change of one is another preparer.
import { RESERVED_PREFIX } from '#wasm/binary/core-module.ts'

/** The module that a metered module imports these from. */
export const METER_MODULE = `${RESERVED_PREFIX}meter`

/**
 * In the order of their indexes, after the module's own imports; each mutable.
 * - `fuel`: i64, units left; below zero it is spent.
 * - `depth`: i64, units of stack left; below zero the guest was ended for it.
 * - `memory`: i64, bytes that memories and tables may still take.
 * - `refused`: i32, 0, or GROWTH.
 */
export const METER_GLOBALS = ['fuel', 'depth', 'memory', 'refused'] as const

/** `budget`: a growth past the budget answered -1. `host`: within it, but the host had not the memory; then it traps. */
export const GROWTH = { granted: 0, budget: 1, host: 2 } as const

/** Fuel schedule 1, what depends on an amount: bytes to a unit, elements to a unit (as shifts), units a page. */
export const BYTES_A_UNIT_SHIFT = 4
export const ELEMENTS_A_UNIT_SHIFT = 1
export const UNITS_A_PAGE_SHIFT = 10

/** ELEMENT_BYTES and PAGE_BYTES. */
export const ELEMENT_BYTES_SHIFT = 4
export const PAGE_BYTES_SHIFT = 16

/** A loop that calls nothing settles when it owes more: what a trap in it may forget, and run past the end of fuel. */
export const OWED_UNITS_MAX = 4096

/** Profile 1: a guest's call depth. A unit is a word of a frame in V8's baseline compiler. */
export const DEPTH_UNITS = 262_144

/** Of each frame beside its locals and operands. */
export const FRAME_UNITS = 9

/** Of a frame that calls its host: frames of JavaScript stand above it. */
export const HOST_FRAME_UNITS = 64

/**
 * A function that calls only such as these, and takes no more of stack and of work, counts neither: its caller does,
 * by what it has left over. Small against DEPTH_UNITS, and against what runs between two looks at the fuel.
 */
export const UNCOUNTED_STACK_MAX = 1024
export const UNCOUNTED_WORK_MAX = 10_000

/** V8's own limits: a body that metering takes past them is refused, as one that starts past them is. */
export const LOCALS_MAX = 50_000
export const BODY_BYTES_MAX = 7_654_321

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

/**
 * A loop pays and looks at the fuel when it owes more. What small functions that it calls take is paid by them, so it
 * looks the more often by how much the largest of them may take: see `owedMax`.
 */
export const OWED_UNITS_MAX = 4096

/** What a loop may owe that calls uncounted functions of so much work: each call is a unit owed and `work` units run. */
export const owedMax = (work: number): number => Math.floor(OWED_UNITS_MAX / (1 + work))

/** Profile 1: a guest's call depth. A unit is a word of a frame in V8's baseline compiler. */
export const DEPTH_UNITS = 262_144

/** Of each frame beside its locals and operands. */
export const FRAME_UNITS = 9

/** Of a frame that calls its host: frames of JavaScript stand above it. */
export const HOST_FRAME_UNITS = 64

/**
 * A function without loops and exceptions that calls only such as these, and takes no more of stack and of work, counts
 * neither: its caller does, by what it has left over. Small against DEPTH_UNITS, and against GAP_UNITS_MAX.
 */
export const UNCOUNTED_STACK_MAX = 1024
export const UNCOUNTED_WORK_MAX = 1024

/** A body looks at the fuel where more than so much may have run since it last did, whatever way led there. */
export const GAP_UNITS_MAX = 65_536

/** The same where it is left: its caller may be left as soon, and the caller's caller, down to the bottom of the stack. */
export const TAIL_UNITS_MAX = 64

/** What runs past the end of fuel at most, whatever calls what: proved where gaps are followed, in gap.ts. */
export const PAST_FUEL_UNITS_MAX =
  Math.floor(DEPTH_UNITS / FRAME_UNITS) * TAIL_UNITS_MAX + 3 * GAP_UNITS_MAX

/** V8's own limits: a body that metering takes past them is refused, as one that starts past them is. */
export const LOCALS_MAX = 50_000
export const BODY_BYTES_MAX = 7_654_321

// How much runs between two looks at the fuel: followed along the walk, and kept small by looks where it grows.
// A look ends the guest whose fuel is spent. One is where a counted body begins, where a loop's header finds much owed,
// where much is copied or grown, and where `look` puts one.
// 1. An uncounted body (budget.ts) has no loop, throws nothing and calls only such: it takes UNCOUNTED_WORK_MAX at most,
//    and has paid when it is left. So exceptions pass only through bodies that pay before they call.
// 2. Where a counted body begins and where the host is called, no frame owes anything.
// 3. `gap` is the most that this activation, with the uncounted bodies it calls, may have run since it last looked or
//    came back from a counted body, on a way without a step back: the widest of the ways that meet. It is never over
//    GAP_UNITS_MAX, nor over TAIL_UNITS_MAX where the body is left. What cannot be known to look takes
//    UNCOUNTED_WORK_MAX, or looks.
// 4. In a loop what pays looks too, or calls what looks. So at a loop's header what was charged since the last look is
//    owed: with what was called for it, OWED_UNITS_MAX at most.
// 5. So an activation runs less than 3 * GAP_UNITS_MAX without a look: what it had paid for when it looked, then the
//    gap before the latest header, then the gap behind that.
// 6. A frame that began is a look: those left since the last one all stood then, and ran TAIL_UNITS_MAX each. Together
//    that is PAST_FUEL_UNITS_MAX, whatever calls what.
import {
  GAP_UNITS_MAX,
  OWED_UNITS_MAX,
  owedMax,
  TAIL_UNITS_MAX,
  UNCOUNTED_WORK_MAX,
} from '#wasm/meter/budget.ts'
import { addEdit, EDIT, LEAVE } from '#wasm/meter/edits.ts'
import { type Frame, topFrame, type Walk } from '#wasm/meter/walk-state.ts'

/** Pays and looks, at byte `at`. */
export function look(walk: Walk, at: number): void {
  walk.gap = 0
  if (walk.stretch === 0) return
  addEdit(walk.edits, EDIT.settle, at, 0)
  walk.paid = true
}

/** What stands at `at` runs `units`. */
export function run(walk: Walk, at: number, units: number): void {
  if (walk.dead || units === 0) return
  walk.gap += units
  if (walk.gap > GAP_UNITS_MAX) {
    look(walk, at)
    walk.gap = units
  }
}

/** Calls an uncounted body that takes `work` at most. */
export function runUncounted(walk: Walk, at: number, work: number): void {
  const frame = topFrame(walk)
  frame.heaviest = Math.max(frame.heaviest, work)
  run(walk, at, work)
}

/** Before a call of what looks when it begins. */
export function payBeforeLook(walk: Walk, at: number): void {
  walk.gap = 0
  if (walk.paid || walk.stretch === 0) return
  addEdit(walk.edits, EDIT.pay, at, 0)
  walk.paid = true
}

/** Before a call of what may be uncounted, of another module, or the host's. */
export function payBeforeUnknown(walk: Walk, at: number): void {
  if (!walk.paid && walk.stretch !== 0) {
    if (walk.loops > 0) look(walk, at)
    else {
      addEdit(walk.edits, EDIT.pay, at, 0)
      walk.paid = true
    }
  }
  run(walk, at, UNCOUNTED_WORK_MAX)
}

/** How the body pays where it is left with this gap. */
export const leaving = (walk: Walk, gap: number): number =>
  gap > TAIL_UNITS_MAX ? LEAVE.look : walk.paid ? LEAVE.paid : LEAVE.pay

/** Before the opcode of a loop, at `at`. */
export function enterLoop(walk: Walk, at: number): void {
  if (!walk.dead) run(walk, at, OWED_UNITS_MAX)
}

/** A branch to the frame's end. */
export function bring(frame: Frame, gap: number): void {
  frame.gapOut = Math.max(frame.gapOut, gap)
}

/** A caught exception comes to the frame's end from anywhere: a look follows. */
export const bringCaught = (frame: Frame): void => bring(frame, GAP_UNITS_MAX)

/** At the end of an arm: what reaches the frame's end. */
export function endArm(walk: Walk, frame: Frame): void {
  if (!walk.dead) bring(frame, walk.gap)
}

/** What the header of a loop whose body is known may owe. */
export function setOwedMax({ edits }: Walk, { edit, heaviest }: Frame): void {
  edits.value[edit - 1] = owedMax(heaviest)
}

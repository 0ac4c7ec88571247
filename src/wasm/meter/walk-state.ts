// The state of a walk over one body: the operand stack's height, the open blocks, and the stretch that is charged.
// 1. A stretch is what runs as a whole once it is begun, traps and exceptions aside. What it costs is charged where it
//    begins. After a block that can only be left at its end, the stretch that the block began in goes on.
// 2. So nothing runs that was not charged before; what is charged and not run is less than one pass over one body.
// 3. Code that cannot be reached is charged to edit 0, which is never written.
import { type Cursor, malformed } from '#wasm/binary/cursor.ts'
import { addEdit, EDIT, type Edits, grownTo } from '#wasm/meter/edits.ts'
import type { Shape } from '#wasm/meter/shape.ts'

export type Frame = {
  /** What opened it, or its latest arm: an ACT. */
  act: number
  /** Stack height below its parameters. */
  height: number
  params: number
  results: number
  /** Whether it stands in code that cannot be reached. */
  dead: boolean
  /** The stretch it was begun in. */
  stretch: number
  /** The lowest frame that a branch inside goes to: below its own number, it can be left otherwise than at its end. */
  lowest: number
  /** Whether a branch goes to its label. */
  targeted: boolean
  /** Whether a caught exception goes to its label. */
  resumes: boolean
  /** A loop's own edit. */
  edit: number
  /** Gaps (gap.ts): where it begins, and the widest that a branch brings to its end. */
  gapIn: number
  gapOut: number
  /** The most that an uncounted function takes which is called inside. */
  heaviest: number
}

export type Walk = {
  readonly cursor: Cursor
  readonly shape: Shape
  readonly edits: Edits
  readonly canonicalNaNs: boolean
  height: number
  /** Stack height below the innermost frame's own values. */
  base: number
  heightMax: number
  dead: boolean
  readonly frames: Frame[]
  /** How many of the frames are loops. */
  loops: number
  /** The edit that the running stretch is charged at. */
  stretch: number
  /** Whether all that was charged has been paid, whatever way led here. */
  paid: boolean
  /** See gap.ts. */
  gap: number
  /** Its number among own functions. */
  readonly own: number
  /** By stack position, the edit of the arithmetic that made the value; 0 for others. */
  producers: Int32Array
  readonly known: Known
  readonly found: Found
}

/** What earlier bodies turned out to cost, by number of own function. `stack`: 0 unknown, -1 they count it themselves. */
export type Known = { stack: Int32Array; work: Int32Array }

/** What the body turned out to hold. */
export type Found = {
  loops: number
  /** A branch to the outermost label. */
  branchesOut: boolean
  /** Vectors: stack values of two words. */
  wide: boolean
  /** It calls what is not known to be small and to call nothing unknown. */
  callsUnknown: boolean
  callsHost: boolean
  /** The deepest stack, in units, of what else it calls. */
  calleeStack: number
  /** Units that those calls take together. */
  calleeWork: number
}

function observe(walk: Walk, position: number): void {
  const producer = walk.producers[position] ?? 0
  if (producer !== 0) walk.edits.value[producer] = 1
}

/** Pops `count` values; `observed`: their bits may show. */
export function pop(walk: Walk, count: number, observed = true): void {
  const bottom = walk.height - count
  if (bottom < walk.base) {
    if (!walk.dead) throw malformed(walk.cursor, 'an instruction lacks its operands')
    if (observed && walk.canonicalNaNs)
      for (let i = walk.base; i < walk.height; i++) observe(walk, i)
    walk.height = walk.base
    return
  }
  if (observed && walk.canonicalNaNs) for (let i = bottom; i < walk.height; i++) observe(walk, i)
  walk.height = bottom
}

/** The top values stay where they are, but elsewhere they show: what a branch takes with it. */
export function observeTop(walk: Walk, count: number): void {
  if (!walk.canonicalNaNs) return
  for (let i = Math.max(walk.base, walk.height - count); i < walk.height; i++) observe(walk, i)
}

export function push(walk: Walk, count: number, producer = 0): void {
  const top = walk.height + count
  if (top > walk.heightMax) {
    walk.heightMax = top
    if (top >= walk.producers.length) walk.producers = grownTo(walk.producers, top * 2)
  }
  if (walk.canonicalNaNs) walk.producers.fill(producer, walk.height, top)
  walk.height = top
}

/** Nothing after this runs until the innermost frame ends or has another arm. */
export function die(walk: Walk): void {
  walk.height = walk.base
  walk.dead = true
  walk.stretch = 0
}

/** Begins a stretch at the cursor, in code that is reached if `reached`. */
export function beginStretch(walk: Walk, reached: boolean): void {
  walk.paid = false
  if (!reached) {
    walk.stretch = 0
    return
  }
  const { edits, cursor } = walk
  const last = edits.count - 1
  const fresh =
    last > 0 &&
    edits.at[last] === cursor.at &&
    edits.kind[last] === EDIT.charge &&
    edits.value[last] === 0
  walk.stretch = fresh ? last : addEdit(edits, EDIT.charge, cursor.at, 0)
}

export function charge(walk: Walk, units: number): void {
  const { value } = walk.edits
  value[walk.stretch] = (value[walk.stretch] ?? 0) + units
}

/** The frame that label `label` names. */
export function frameOf(walk: Walk, label: number): Frame {
  const frame = walk.frames[walk.frames.length - 1 - label]
  if (frame === undefined) throw malformed(walk.cursor, `no block has label ${label}`)
  return frame
}

export function topFrame(walk: Walk): Frame {
  const frame = walk.frames[walk.frames.length - 1]
  if (frame === undefined) throw malformed(walk.cursor, 'a body goes on after its end')
  return frame
}

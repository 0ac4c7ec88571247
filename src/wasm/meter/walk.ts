// Walks one body once: follows its operand stack's height and its blocks, and lists what metering changes in it.
import { count, type Cursor, malformed, refuse, u32 } from '#wasm/binary/cursor.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'
import {
  FRAME_UNITS,
  HOST_FRAME_UNITS,
  UNCOUNTED_STACK_MAX,
  UNCOUNTED_WORK_MAX,
} from '#wasm/meter/budget.ts'
import { addEdit, EDIT, type Edits } from '#wasm/meter/edits.ts'
import {
  ACT,
  ACTS,
  FLOAT,
  FLOATS,
  FUEL,
  IMMEDIATE,
  IMMEDIATES,
  NAMES,
  numberOf,
  POPS,
  PUSHES,
  readOpcode,
  skipImmediates,
} from '#wasm/meter/instruction-set.ts'
import { type FunctionType, type Shape, V128 } from '#wasm/meter/shape.ts'
import { run } from '#wasm/meter/gap.ts'
import { HANDLERS, openBody } from '#wasm/meter/walk-control.ts'
import {
  beginStretch,
  charge,
  type Found,
  type Known,
  pop,
  push,
  type Walk,
} from '#wasm/meter/walk-state.ts'

/** Positions are bytes of the code section. */
export type Body = {
  /** Parameters and locals. */
  locals: number
  /** Where its declared locals begin, with their count of groups, and where its instructions do. */
  start: number
  code: number
  end: number
  type: FunctionType
  found: Found
  /** Stack it takes itself, in units. */
  frameUnits: number
  /** Whether it counts depth and looks at the fuel when it is begun. */
  counted: boolean
}

export type BodyWalker = {
  shape: Shape
  edits: Edits
  known: Known
  canonicalNaNs: boolean
  producers: Int32Array
}

const VECTOR_PREFIX = numberOf(0xfd_00)
const ATOMIC_PREFIX = numberOf(0xfe_00)
const RELAXED = VECTOR_PREFIX + 0x100
const CONVERSIONS = new Set(
  ['f32x4.demote_f64x2_zero', 'f64x2.promote_low_f32x4'].map((name) => NAMES.indexOf(name)),
)

/** Reads the declared locals; returns how many there are. */
function readLocals(cursor: Cursor, found: Found): number {
  let locals = 0
  for (let left = count(cursor); left > 0; left--) {
    locals += u32(cursor)
    found.wide ||= cursor.bytes[cursor.at] === V128
    skipValueType(cursor)
  }
  return locals
}

/** An operation whose NaN is made canonical if it shows: see FLOAT. */
function arithmetic(walk: Walk, instruction: number, float: number): void {
  const operands = POPS[instruction] ?? 0
  if (float >= FLOAT.f32x4) {
    // Lanes of one width that are read as another show their bits.
    const { producers, edits, height } = walk
    for (let i = Math.max(walk.base, height - operands); i < height; i++) {
      const producer = producers[i] ?? 0
      if (edits.kind[producer] !== float || CONVERSIONS.has(instruction)) edits.value[producer] = 1
    }
  }
  pop(walk, operands, false)
  push(walk, 1, addEdit(walk.edits, float, walk.cursor.at, 0))
}

function plain(walk: Walk, instruction: number): void {
  if (IMMEDIATES[instruction] !== IMMEDIATE.none) skipImmediates(walk.cursor, instruction)
  if (instruction >= VECTOR_PREFIX && instruction < ATOMIC_PREFIX) walk.found.wide = true
  const float = FLOATS[instruction] ?? FLOAT.observes
  const pops = POPS[instruction] ?? 0
  if (!walk.canonicalNaNs || float === FLOAT.observes) {
    pop(walk, pops)
    push(walk, PUSHES[instruction] ?? 0)
  } else if (float === FLOAT.ignores) {
    pop(walk, pops, false)
    push(walk, PUSHES[instruction] ?? 0)
  } else if (float >= FLOAT.f32) arithmetic(walk, instruction, float)
}

const relaxed = (at: number, instruction: number): Error =>
  refuse(
    'UNSUPPORTED_INSTRUCTION',
    `the code uses ${NAMES[instruction]} at byte ${at}, whose result depends on the machine`,
    'build without relaxed SIMD',
  )

function follow(walk: Walk): void {
  const { cursor, frames } = walk
  while (frames.length > 0) {
    const at = cursor.at
    const instruction = readOpcode(cursor)
    const units = FUEL[instruction] ?? 1
    charge(walk, units)
    run(walk, at, units)
    const act = ACTS[instruction] ?? ACT.refused
    if (act === ACT.plain) {
      if (walk.canonicalNaNs && instruction >= RELAXED && instruction < ATOMIC_PREFIX)
        throw relaxed(at, instruction)
      plain(walk, instruction)
    } else HANDLERS[act]?.(walk, at, instruction)
  }
  if (cursor.at !== cursor.end) throw malformed(cursor, 'a body goes on after its end')
}

const newFound = (): Found => ({
  loops: 0,
  branchesOut: false,
  wide: false,
  callsUnknown: false,
  callsHost: false,
  calleeStack: 0,
  calleeWork: 0,
})

function beginWalk(walker: BodyWalker, own: number, cursor: Cursor): Walk {
  walker.edits.count = 0
  addEdit(walker.edits, EDIT.none, 0, 0)
  const { shape, edits, known, canonicalNaNs, producers } = walker
  return {
    cursor,
    shape,
    edits,
    known,
    canonicalNaNs,
    height: 0,
    base: 0,
    heightMax: 0,
    dead: false,
    frames: [],
    loops: 0,
    stretch: 0,
    paid: false,
    gap: 0,
    own,
    producers,
    found: newFound(),
  }
}

/** Units of stack that one frame of the body takes: see FRAME_UNITS. */
function frameUnits(locals: number, heightMax: number, found: Found): number {
  const words = (locals + heightMax) * (found.wide ? 2 : 1)
  return FRAME_UNITS + words + (found.callsHost ? HOST_FRAME_UNITS : 0)
}

/** All that the body charges anywhere, each once: without a loop, the most that it can take. */
function workOf({ kind, value, count: edits }: Edits): number {
  let work = 0
  for (let i = 1; i < edits; i++)
    if (kind[i] === EDIT.charge || kind[i] === EDIT.loop) work += value[i] ?? 0
  return work
}

/**
 * Walks the body of own function `own`; `cursor` spans it. Leaves what is to change in `walker.edits`, and what later
 * bodies want to know of it in `walker.known`.
 */
export function walkBody(walker: BodyWalker, own: number, cursor: Cursor): Body {
  const { shape, known, edits } = walker
  const type = shape.types[shape.functions[shape.importedFunctions + own] ?? -1]
  if (type === undefined) throw malformed(cursor, `function ${own} has no type`)
  const walk = beginWalk(walker, own, cursor)
  const { found } = walk
  const start = cursor.at
  const locals = type.params + readLocals(cursor, found)
  const code = cursor.at
  beginStretch(walk, true)
  openBody(walk, type)
  follow(walk)
  walker.producers = walk.producers
  const units = frameUnits(locals, walk.heightMax, found)
  const stack = units + found.calleeStack
  const work = workOf(edits) + found.calleeWork
  const counted =
    found.loops > 0 ||
    found.callsUnknown ||
    stack > UNCOUNTED_STACK_MAX ||
    work > UNCOUNTED_WORK_MAX
  known.stack[own] = counted ? -1 : stack
  known.work[own] = work
  return { locals, start, code, end: cursor.end, type, found, frameUnits: units, counted }
}

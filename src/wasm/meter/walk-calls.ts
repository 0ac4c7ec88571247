// What the walk does where a body calls another, throws, or is left before its end.
import { malformed, u32 } from '#wasm/binary/cursor.ts'
import { UNCOUNTED_WORK_MAX } from '#wasm/meter/budget.ts'
import { addEdit, EDIT } from '#wasm/meter/edits.ts'
import {
  leaving,
  look,
  payBeforeLook,
  payBeforeUnknown,
  run,
  runUncounted,
} from '#wasm/meter/gap.ts'
import type { FunctionType } from '#wasm/meter/shape.ts'
import { die, pop, push, topFrame, type Walk } from '#wasm/meter/walk-state.ts'

export function typeAt(walk: Walk, index: number): FunctionType {
  const type = walk.shape.types[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no type ${index}`)
  return type
}

export function typeOfFunction(walk: Walk, index: number): FunctionType {
  const type = walk.shape.functions[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no function ${index}`)
  return typeAt(walk, type)
}

export function typeOfTag(walk: Walk, index: number): FunctionType {
  const type = walk.shape.tags[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no tag ${index}`)
  return typeAt(walk, type)
}

/** Leaves the function: every open frame is left otherwise than at its end. */
export function leave(walk: Walk, at: number): void {
  topFrame(walk).lowest = -1
  if (walk.stretch !== 0) addEdit(walk.edits, EDIT.leave, at, leaving(walk, walk.gap))
}

function effect(walk: Walk, type: FunctionType): void {
  walk.found.wide ||= type.wide
  pop(walk, type.params)
  push(walk, type.resultCount)
}

/** Whether the function looks at the fuel when it begins: it is known to, or is this one, which calls itself. */
export function looks({ known, shape, own }: Walk, index: number): boolean {
  const called = index - shape.importedFunctions
  return called === own || known.stack[called] === -1
}

export function call(walk: Walk, at: number): void {
  const index = u32(walk.cursor)
  const { found, shape, known } = walk
  const own = index - shape.importedFunctions
  const stack = known.stack[own] ?? 0
  if (stack > 0) {
    const work = known.work[own] ?? 0
    found.calleeStack = Math.max(found.calleeStack, stack)
    found.calleeWork += work
    runUncounted(walk, at, work)
  } else {
    found.callsUnknown = true
    found.callsHost ||= own < 0
    if (looks(walk, index)) payBeforeLook(walk, at)
    else payBeforeUnknown(walk, at)
  }
  effect(walk, typeOfFunction(walk, index))
}

export function callUnknown(walk: Walk, at: number, type: FunctionType): void {
  walk.found.callsUnknown = true
  payBeforeUnknown(walk, at)
  pop(walk, 1)
  effect(walk, type)
}

/** `looksFirst`: what is called looks when it begins; what does not may run on for what the caller left over. */
export function tailCall(walk: Walk, at: number, type: FunctionType, looksFirst: boolean): void {
  walk.found.callsUnknown = true
  if (looksFirst) walk.gap = 0
  else run(walk, at, UNCOUNTED_WORK_MAX)
  pop(walk, type.params)
  leave(walk, at)
  die(walk)
}

export function throwException(walk: Walk, at: number, operands: number): void {
  // Whoever calls this has to pay before.
  walk.found.callsUnknown = true
  look(walk, at)
  pop(walk, operands)
  die(walk)
}

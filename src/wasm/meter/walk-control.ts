// What the walk does at the instructions that are not plain: blocks, branches, calls, exceptions, globals and growth.
import { count, malformed, u32, u8 } from '#wasm/binary/cursor.ts'
import { addEdit, EDIT } from '#wasm/meter/edits.ts'
import { ACT, ACTS, skipBlockType, skipImmediates } from '#wasm/meter/instruction-set.ts'
import { METER_GLOBALS } from '#wasm/meter/budget.ts'
import { type FunctionType, V128 } from '#wasm/meter/shape.ts'
import {
  beginStretch,
  die,
  type Frame,
  frameOf,
  observeTop,
  pay,
  pop,
  push,
  topFrame,
  type Walk,
} from '#wasm/meter/walk-state.ts'

/** `at`: where the opcode stands; the cursor stands behind it, and behind everything when it returns. */
type Handler = (walk: Walk, at: number, instruction: number) => void

const NOTHING = new Uint8Array(0)
const VOID: FunctionType = { params: 0, results: NOTHING, resultCount: 0, wide: false }
const ONE: FunctionType = { ...VOID, resultCount: 1 }
const ONE_WIDE: FunctionType = { ...ONE, wide: true }

const EMPTY_BLOCK = 0x40
const NO_FRAME = 0x7fffffff
const RETHROW = 0x09
const GLOBAL_GET = 0x23

function typeAt(walk: Walk, index: number): FunctionType {
  const type = walk.shape.types[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no type ${index}`)
  return type
}

function typeOfFunction(walk: Walk, index: number): FunctionType {
  const type = walk.shape.functions[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no function ${index}`)
  return typeAt(walk, type)
}

function typeOfTag(walk: Walk, index: number): FunctionType {
  const type = walk.shape.tags[index]
  if (type === undefined) throw malformed(walk.cursor, `there is no tag ${index}`)
  return typeAt(walk, type)
}

function blockType(walk: Walk): FunctionType {
  const { cursor } = walk
  const first = cursor.bytes[cursor.at] ?? 0
  if (first < EMPTY_BLOCK || first > 0x7f) return typeAt(walk, u32(cursor))
  skipBlockType(cursor)
  if (first === EMPTY_BLOCK) return VOID
  return first === V128 ? ONE_WIDE : ONE
}

/** Opens the frame of a whole body. */
export function openBody(walk: Walk, type: FunctionType): void {
  walk.found.wide ||= type.wide
  walk.frames.push(newFrame(walk, ACT.block, { ...type, params: 0 }))
}

const newFrame = (walk: Walk, act: number, type: FunctionType): Frame => ({
  act,
  height: walk.height,
  params: type.params,
  results: type.resultCount,
  dead: walk.dead,
  stretch: walk.stretch,
  lowest: NO_FRAME,
  targeted: false,
  resumes: false,
  edit: 0,
})

function open(walk: Walk, act: number, type: FunctionType): Frame {
  walk.found.wide ||= type.wide
  pop(walk, type.params)
  const frame = newFrame(walk, act, type)
  walk.frames.push(frame)
  walk.base = walk.height
  push(walk, type.params)
  return frame
}

function openLoop(walk: Walk): void {
  const frame = open(walk, ACT.loop, blockType(walk))
  walk.loops++
  walk.paid = false
  if (walk.dead) return
  // Room for what a caught exception needs here.
  addEdit(walk.edits, EDIT.none, walk.cursor.at, 0)
  frame.edit = addEdit(walk.edits, EDIT.loop, walk.cursor.at, 0)
  walk.stretch = frame.edit
}

function openIf(walk: Walk): void {
  pop(walk, 1)
  open(walk, ACT.if, blockType(walk))
  beginStretch(walk, !walk.dead)
}

/** The next arm of an `if` or `try`. */
function nextArm(walk: Walk, act: number, params: number): void {
  const frame = topFrame(walk)
  pop(walk, frame.results)
  frame.act = act
  walk.height = frame.height
  walk.dead = frame.dead
  push(walk, params)
  beginStretch(walk, !walk.dead)
}

function nextElse(walk: Walk): void {
  const frame = topFrame(walk)
  if (frame.act !== ACT.if) throw malformed(walk.cursor, 'an else without its if')
  nextArm(walk, ACT.else, frame.params)
}

function nextCatch(walk: Walk, act: number, params: number): void {
  const { act: opened } = topFrame(walk)
  if (opened !== ACT.try && opened !== ACT.catch)
    throw malformed(walk.cursor, 'a catch without its try')
  walk.found.catches = true
  nextArm(walk, act, params)
  addEdit(walk.edits, EDIT.resume, walk.cursor.at, 0)
}

/** Whether more than one way leads to what follows the frame. */
const isJoin = ({ act, targeted }: Frame): boolean =>
  act !== ACT.loop && (targeted || (act !== ACT.block && act !== ACT.try))

function stretchAfter(walk: Walk, frame: Frame, diedInside: boolean): void {
  const escapes = frame.lowest < walk.frames.length
  const join = isJoin(frame)
  if (join) walk.paid = false
  if (!escapes) walk.stretch = frame.stretch
  else if (join) beginStretch(walk, !frame.dead)
  else if (diedInside) walk.stretch = 0
}

function close(walk: Walk, at: number): void {
  const frame = topFrame(walk)
  pop(walk, frame.results)
  if (walk.frames.length === 1) return closeBody(walk, at)
  const diedInside = walk.dead
  walk.frames.pop()
  const parent = topFrame(walk)
  parent.lowest = Math.min(parent.lowest, frame.lowest)
  walk.height = frame.height
  walk.base = parent.height
  walk.dead = frame.dead
  push(walk, frame.results)
  if (frame.act === ACT.loop) closeLoop(walk, frame)
  if (frame.resumes) addEdit(walk.edits, EDIT.resume, walk.cursor.at, 0)
  stretchAfter(walk, frame, diedInside)
}

function closeLoop(walk: Walk, { edit, targeted }: Frame): void {
  walk.loops--
  if (edit === 0) return
  if (targeted) walk.found.loops++
  else walk.edits.kind[edit] = EDIT.charge
}

function closeBody(walk: Walk, at: number): void {
  walk.frames.pop()
  if (walk.dead && !walk.found.branchesOut) return
  addEdit(walk.edits, EDIT.end, at, walk.paid && !walk.found.branchesOut ? 1 : 0)
}

/** Notes a branch; returns how many values it takes. */
function branchTo(walk: Walk, label: number): number {
  const frame = frameOf(walk, label)
  const number = walk.frames.length - 1 - label
  frame.targeted = true
  const top = topFrame(walk)
  top.lowest = Math.min(top.lowest, number)
  if (number === 0) walk.found.branchesOut = true
  return frame.act === ACT.loop ? frame.params : frame.results
}

/** Leaves the function: every open frame is left otherwise than at its end. */
function leave(walk: Walk, at: number): void {
  topFrame(walk).lowest = -1
  if (walk.stretch !== 0) addEdit(walk.edits, EDIT.leave, at, walk.paid ? 1 : 0)
}

function branchTable(walk: Walk): void {
  let arity = 0
  for (let left = count(walk.cursor); left >= 0; left--) arity = branchTo(walk, u32(walk.cursor))
  pop(walk, 1)
  pop(walk, arity)
  die(walk)
}

function openTryTable(walk: Walk): void {
  const type = blockType(walk)
  walk.found.catches = true
  for (let left = count(walk.cursor); left > 0; left--) {
    const kind = u8(walk.cursor)
    if (kind > 0x03) throw malformed(walk.cursor, `a catch of kind ${kind}`)
    if (kind <= 0x01) u32(walk.cursor)
    const label = u32(walk.cursor)
    branchTo(walk, label)
    const frame = frameOf(walk, label)
    if (frame.act !== ACT.loop) frame.resumes = true
    else if (frame.edit !== 0) walk.edits.kind[frame.edit - 1] = EDIT.resume
  }
  open(walk, ACT.block, type)
}

function effect(walk: Walk, type: FunctionType): void {
  walk.found.wide ||= type.wide
  pop(walk, type.params)
  push(walk, type.resultCount)
}

function call(walk: Walk, at: number): void {
  const index = u32(walk.cursor)
  const { found, shape, known } = walk
  const own = index - shape.importedFunctions
  const stack = known.stack[own] ?? 0
  if (stack > 0) {
    found.calleeStack = Math.max(found.calleeStack, stack)
    found.calleeWork += known.work[own] ?? 0
  } else {
    found.callsUnknown = true
    found.callsHost ||= own < 0
    // What stands here looks at the fuel when it is begun; what is imported may not.
    pay(walk, at, own >= 0)
  }
  effect(walk, typeOfFunction(walk, index))
}

function callUnknown(walk: Walk, at: number, type: FunctionType): void {
  walk.found.callsUnknown = true
  pay(walk, at, false)
  pop(walk, 1)
  effect(walk, type)
}

function tailCall(walk: Walk, at: number, type: FunctionType): void {
  walk.found.callsUnknown = true
  pop(walk, type.params)
  leave(walk, at)
  die(walk)
}

function throwException(walk: Walk, at: number, operands: number): void {
  pay(walk, at, false)
  pop(walk, operands)
  die(walk)
}

function global(walk: Walk, at: number): void {
  const { cursor, shape, edits } = walk
  const index = u32(cursor)
  if (cursor.bytes[at] === GLOBAL_GET) push(walk, 1)
  else pop(walk, 1)
  if (index < shape.importedGlobals) return
  const edit = addEdit(edits, EDIT.global, at + 1, index + METER_GLOBALS.length)
  edits.until[edit] = cursor.at
}

/** A growth, whose operands a function of ours takes over. */
function grow(walk: Walk, at: number, kind: number): void {
  const index = u32(walk.cursor)
  pop(walk, kind === EDIT.tableGrow ? 2 : 1)
  push(walk, 1)
  walk.edits.until[addEdit(walk.edits, kind, at, index)] = walk.cursor.at
}

function bulk(walk: Walk, at: number, instruction: number): void {
  skipImmediates(walk.cursor, instruction)
  addEdit(walk.edits, ACTS[instruction] === ACT.bytes ? EDIT.bytes : EDIT.elements, at, 0)
  pop(walk, 3)
}

const BY_NAME: Record<Exclude<keyof typeof ACT, 'refused' | 'plain'>, Handler> = {
  unreachable: die,
  block: (walk) => void open(walk, ACT.block, blockType(walk)),
  loop: openLoop,
  if: openIf,
  else: nextElse,
  try: (walk) => void open(walk, ACT.try, blockType(walk)),
  catch: (walk) => nextCatch(walk, ACT.catch, typeOfTag(walk, u32(walk.cursor)).params),
  catchAll: (walk) => nextCatch(walk, ACT.catchAll, 0),
  delegate: (walk, at) => {
    u32(walk.cursor)
    if (walk.frames.length === 1) throw malformed(walk.cursor, 'a delegate without its try')
    close(walk, at)
  },
  tryTable: openTryTable,
  end: close,
  throw: (walk, at) => throwException(walk, at, typeOfTag(walk, u32(walk.cursor)).params),
  throwAny: (walk, at) => {
    if (walk.cursor.bytes[at] === RETHROW) u32(walk.cursor)
    throwException(walk, at, 0)
  },
  branch: (walk) => {
    pop(walk, branchTo(walk, u32(walk.cursor)))
    die(walk)
  },
  branchIf: (walk) => {
    pop(walk, 1)
    observeTop(walk, branchTo(walk, u32(walk.cursor)))
    beginStretch(walk, walk.stretch !== 0)
  },
  branchTable,
  branchOnNull: (walk) => {
    pop(walk, 1)
    observeTop(walk, branchTo(walk, u32(walk.cursor)))
    push(walk, 1)
    beginStretch(walk, walk.stretch !== 0)
  },
  branchOnNonNull: (walk) => {
    observeTop(walk, branchTo(walk, u32(walk.cursor)))
    pop(walk, 1)
    beginStretch(walk, walk.stretch !== 0)
  },
  return: (walk, at) => {
    pop(walk, walk.frames[0]?.results ?? 0)
    leave(walk, at)
    die(walk)
  },
  call,
  callIndirect: (walk, at) => {
    const type = typeAt(walk, u32(walk.cursor))
    u32(walk.cursor)
    callUnknown(walk, at, type)
  },
  callRef: (walk, at) => callUnknown(walk, at, typeAt(walk, u32(walk.cursor))),
  tailCall: (walk, at) => tailCall(walk, at, typeOfFunction(walk, u32(walk.cursor))),
  tailCallIndirect: (walk, at) => {
    const type = typeAt(walk, u32(walk.cursor))
    u32(walk.cursor)
    pop(walk, 1)
    tailCall(walk, at, type)
  },
  tailCallRef: (walk, at) => {
    const type = typeAt(walk, u32(walk.cursor))
    pop(walk, 1)
    tailCall(walk, at, type)
  },
  global,
  memoryGrow: (walk, at) => grow(walk, at, EDIT.memoryGrow),
  tableGrow: (walk, at) => grow(walk, at, EDIT.tableGrow),
  bytes: bulk,
  elements: bulk,
}
const isAct = (name: string): name is keyof typeof ACT => Object.hasOwn(ACT, name)

/** By ACT; `plain` is the walk's own. */
export const HANDLERS: readonly (Handler | undefined)[] = Object.entries(BY_NAME).reduce<
  (Handler | undefined)[]
>((list, [name, handler]) => {
  if (isAct(name)) list[ACT[name]] = handler
  return list
}, [])

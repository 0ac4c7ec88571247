// What the walk does at the instructions that are not plain: blocks, branches, calls, exceptions, globals and growth.
import { count, malformed, u32, u8 } from '#wasm/binary/cursor.ts'
import { addEdit, EDIT, LEAVE } from '#wasm/meter/edits.ts'
import {
  bring,
  bringCaught,
  endArm,
  enterLoop,
  leaving,
  look,
  setOwedMax,
} from '#wasm/meter/gap.ts'
import { ACT, ACTS, skipBlockType, skipImmediates } from '#wasm/meter/instruction-set.ts'
import { METER_GLOBALS } from '#wasm/meter/budget.ts'
import { type FunctionType, V128 } from '#wasm/meter/shape.ts'
import {
  call,
  callUnknown,
  leave,
  looks,
  tailCall,
  throwException,
  typeAt,
  typeOfFunction,
  typeOfTag,
} from '#wasm/meter/walk-calls.ts'
import {
  beginStretch,
  die,
  type Frame,
  frameOf,
  observeTop,
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
  gapIn: walk.gap,
  gapOut: 0,
  heaviest: 0,
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

function openLoop(walk: Walk, at: number): void {
  enterLoop(walk, at)
  const frame = open(walk, ACT.loop, blockType(walk))
  walk.loops++
  walk.paid = false
  if (walk.dead) return
  // What it may owe, and room for what a caught exception needs here.
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
  endArm(walk, frame)
  walk.gap = frame.gapIn
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
  nextArm(walk, act, params)
  addEdit(walk.edits, EDIT.resume, walk.cursor.at, 0)
  look(walk, walk.cursor.at)
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
  endArm(walk, frame)
  if (frame.act === ACT.if) bring(frame, frame.gapIn)
  walk.gap = frame.gapOut
  walk.frames.pop()
  const parent = topFrame(walk)
  parent.lowest = Math.min(parent.lowest, frame.lowest)
  parent.heaviest = Math.max(parent.heaviest, frame.heaviest)
  walk.height = frame.height
  walk.base = parent.height
  walk.dead = frame.dead
  push(walk, frame.results)
  if (frame.act === ACT.loop) closeLoop(walk, frame)
  if (frame.resumes) addEdit(walk.edits, EDIT.resume, walk.cursor.at, 0)
  stretchAfter(walk, frame, diedInside)
}

function closeLoop(walk: Walk, frame: Frame): void {
  const { edit, targeted } = frame
  walk.loops--
  if (edit === 0) return
  setOwedMax(walk, frame)
  if (targeted) walk.found.loops++
  else walk.edits.kind[edit] = EDIT.charge
}

function closeBody(walk: Walk, at: number): void {
  const frame = topFrame(walk)
  endArm(walk, frame)
  walk.frames.pop()
  const { branchesOut } = walk.found
  if (walk.dead && !branchesOut) return
  const how = leaving(walk, frame.gapOut)
  addEdit(walk.edits, EDIT.end, at, branchesOut && how === LEAVE.paid ? LEAVE.pay : how)
}

/** Notes a branch; returns how many values it takes. */
function branchTo(walk: Walk, label: number): number {
  const frame = frameOf(walk, label)
  const number = walk.frames.length - 1 - label
  frame.targeted = true
  const top = topFrame(walk)
  top.lowest = Math.min(top.lowest, number)
  if (number === 0) walk.found.branchesOut = true
  if (!walk.dead && frame.act !== ACT.loop) bring(frame, walk.gap)
  return frame.act === ACT.loop ? frame.params : frame.results
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
  for (let left = count(walk.cursor); left > 0; left--) {
    const kind = u8(walk.cursor)
    if (kind > 0x03) throw malformed(walk.cursor, `a catch of kind ${kind}`)
    if (kind <= 0x01) u32(walk.cursor)
    const label = u32(walk.cursor)
    branchTo(walk, label)
    const frame = frameOf(walk, label)
    bringCaught(frame)
    if (frame.act !== ACT.loop) frame.resumes = true
    else if (frame.edit !== 0) walk.edits.kind[frame.edit - 1] = EDIT.resume
  }
  open(walk, ACT.block, type)
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
  tailCall: (walk, at) => {
    const index = u32(walk.cursor)
    tailCall(walk, at, typeOfFunction(walk, index), looks(walk, index))
  },
  tailCallIndirect: (walk, at) => {
    const type = typeAt(walk, u32(walk.cursor))
    u32(walk.cursor)
    pop(walk, 1)
    tailCall(walk, at, type, false)
  },
  tailCallRef: (walk, at) => {
    const type = typeAt(walk, u32(walk.cursor))
    pop(walk, 1)
    tailCall(walk, at, type, false)
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

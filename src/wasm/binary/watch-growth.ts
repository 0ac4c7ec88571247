// Rewrites a valid core module so that its host can see two things that WASM hides: how large its memories became,
// and whether a growth was refused.
// 1. Every `memory.grow m` becomes a call to an appended function that asks its host, grows, and notes a refusal in a
//    global. A memory's own maximum caps it alone; only the host knows what all memories of an invocation take.
// 2. That global, the table that holds the host's answer and every own memory are exported under reserved names
//    (growth.ts).
// 3. Everything is appended at the end of its index space: no index of the module changes.
import { assert } from '#lib/assert.ts'
import {
  type Cursor,
  count,
  cursorOver,
  pushName,
  pushU32,
  refuse,
  skip,
  u32,
  u8,
} from '#wasm/binary/cursor.ts'
import { type CoreModule, readCoreModule, skipValueType } from '#wasm/binary/core-module.ts'
import { GRANT, GROWTH_REFUSED, memoryExport } from '#wasm/binary/growth.ts'
import { stepInstruction } from '#wasm/binary/instructions.ts'
import { concat, putTogether, SECTION, type Sections, takeApart } from '#wasm/binary/sections.ts'

const MEMORY_GROW = 0x40
const CALL = 0x10
const FUNC_FORM = 0x60
const I32 = 0x7f
const FUNCREF = 0x70
const EXPORT_TABLE = 0x01
const EXPORT_MEMORY = 0x02
const EXPORT_GLOBAL = 0x03

type Grow = { at: number; end: number; memory: number }
type Body = { start: number; end: number; grows: Grow[] }

const vectorLength = (sections: Sections, id: number): number => {
  const body = sections.bodies.get(id)?.[0]
  return body === undefined ? 0 : count(cursorOver(body))
}

const imported = (module: CoreModule, kind: string): number =>
  module.imports.filter((one) => one.kind === kind).length

function readBody(code: Uint8Array, start: number, end: number): Body {
  const cursor = cursorOver(code, start, end)
  for (let left = count(cursor); left > 0; left--) {
    u32(cursor)
    skipValueType(cursor)
  }
  const grows: Grow[] = []
  while (cursor.at < end) {
    const at = cursor.at
    if (stepInstruction(cursor) !== MEMORY_GROW) continue
    const memory = u32(cursorOver(code, at + 1, end))
    grows.push({ at, end: cursor.at, memory })
  }
  return { start, end, grows }
}

function readBodies(code: Uint8Array): Body[] {
  const cursor = cursorOver(code)
  return Array.from({ length: count(cursor) }, () => {
    const length = u32(cursor)
    const start = cursor.at
    skip(cursor, length)
    return readBody(code, start, cursor.at)
  })
}

/** Replaces a vector's length and appends one element. */
function append(sections: Sections, id: number, element: number[]): void {
  const body = sections.bodies.get(id)?.[0] ?? Uint8Array.of(0)
  const cursor = cursorOver(body)
  const head: number[] = []
  pushU32(head, count(cursor) + 1)
  const parts = [Uint8Array.from(head), body.subarray(cursor.at), Uint8Array.from(element)]
  sections.bodies.set(id, [concat(parts)])
}

/** One type is one index only while every entry is a plain function type. */
function checkPlainTypes(body: Uint8Array | undefined): void {
  const cursor: Cursor = cursorOver(body ?? Uint8Array.of(0))
  for (let left = count(cursor); left > 0; left--) {
    const form = u8(cursor)
    if (form !== FUNC_FORM)
      throw refuse(
        'UNSUPPORTED_TYPE',
        `the module defines a type of form 0x${form.toString(16)}; functions have plain function types`,
        'build without garbage-collected types',
      )
    for (let part = 0; part < 2; part++)
      for (let values = count(cursor); values > 0; values--) skipValueType(cursor)
  }
}

type Appended = { type: number; refused: number; grant: number }

/** `(func (param i32) (result i32))`: grows memory `memory` if the host grants it, and notes a refusal. */
function growFunction(memory: number, { type, refused, grant }: Appended): number[] {
  const code = [0x00]
  const noteRefusal = (): void => {
    code.push(0x41, 0x01, 0x24) // i32.const 1; global.set
    pushU32(code, refused)
  }
  code.push(0x02, 0x40, 0x41, 0x00, 0x25) // block; i32.const 0; table.get
  pushU32(code, grant)
  code.push(0xd1, 0x0d, 0x00) // ref.is_null; br_if 0
  code.push(0x20, 0x00, 0x41, 0x00, 0x11) // local.get 0; i32.const 0; call_indirect
  pushU32(code, type)
  pushU32(code, grant)
  code.push(0x0d, 0x00) // br_if 0
  noteRefusal()
  code.push(0x41, 0x7f, 0x0f, 0x0b) // i32.const -1; return; end
  code.push(0x20, 0x00, MEMORY_GROW) // local.get 0
  pushU32(code, memory)
  code.push(0x22, 0x00, 0x41, 0x7f, 0x46, 0x04, 0x40) // local.tee 0; i32.const -1; i32.eq; if
  noteRefusal()
  code.push(0x0b, 0x20, 0x00, 0x0b) // end; local.get 0; end
  const sized: number[] = []
  pushU32(sized, code.length)
  return [...sized, ...code]
}

const callTo = (index: number): Uint8Array => {
  const call = [CALL]
  pushU32(call, index)
  return Uint8Array.from(call)
}

/** The body with its calls in place of its growths, and its length before it. */
function rewrittenBody(
  code: Uint8Array,
  body: Body,
  callOf: ReadonlyMap<number, Uint8Array>,
): Uint8Array {
  const calls = body.grows.map(({ memory }) => callOf.get(memory) ?? callTo(0))
  const before = body.grows.reduce((sum, { at, end }) => sum + end - at, 0)
  const after = calls.reduce((sum, call) => sum + call.length, 0)
  const length = body.end - body.start - before + after
  const header: number[] = []
  pushU32(header, length)
  const out = new Uint8Array(header.length + length)
  out.set(header)
  let to = header.length
  let copied = body.start
  const copy = (part: Uint8Array): void => {
    out.set(part, to)
    to += part.length
  }
  body.grows.forEach(({ at, end }, i) => {
    copy(code.subarray(copied, at))
    copy(calls[i] ?? callTo(0))
    copied = end
  })
  copy(code.subarray(copied, body.end))
  return out
}

function appendExport(
  sections: Sections,
  name: string,
  { kind, index }: { kind: number; index: number },
): void {
  const exported: number[] = []
  pushName(exported, name)
  exported.push(kind)
  pushU32(exported, index)
  append(sections, SECTION.export, exported)
}

function watchGrows(sections: Sections, module: CoreModule, code: Uint8Array): void {
  const bodies = readBodies(code)
  const memories = [...new Set(bodies.flatMap(({ grows }) => grows.map(({ memory }) => memory)))]
  if (memories.length === 0) return
  const firstFunction = imported(module, 'func') + vectorLength(sections, SECTION.function)
  const appended: Appended = {
    type: vectorLength(sections, SECTION.type),
    refused: imported(module, 'global') + vectorLength(sections, SECTION.global),
    grant: imported(module, 'table') + vectorLength(sections, SECTION.table),
  }
  append(sections, SECTION.type, [FUNC_FORM, 1, I32, 1, I32])
  // (mut i32), starting at 0.
  append(sections, SECTION.global, [I32, 0x01, 0x41, 0x00, 0x0b])
  // One entry, null.
  append(sections, SECTION.table, [FUNCREF, 0x01, 0x01, 0x01])
  const callOf = new Map(memories.map((memory, i) => [memory, callTo(firstFunction + i)]))
  const typeBytes: number[] = []
  pushU32(typeBytes, appended.type)
  for (const _ of memories) append(sections, SECTION.function, typeBytes)
  const head: number[] = []
  pushU32(head, bodies.length + memories.length)
  sections.bodies.set(SECTION.code, [
    Uint8Array.from(head),
    ...bodies.map((body) => rewrittenBody(code, body, callOf)),
    ...memories.map((memory) => Uint8Array.from(growFunction(memory, appended))),
  ])
  appendExport(sections, GROWTH_REFUSED, { kind: EXPORT_GLOBAL, index: appended.refused })
  appendExport(sections, GRANT, { kind: EXPORT_TABLE, index: appended.grant })
}

/** The watched form of a module that V8 finds valid. Refuses UNSUPPORTED_…; the result is valid again. */
export function watchGrowth(bytes: Uint8Array): Uint8Array {
  const module = readCoreModule(bytes)
  const sections = takeApart(bytes)
  checkPlainTypes(sections.bodies.get(SECTION.type)?.[0])
  const code = sections.bodies.get(SECTION.code)?.[0]
  if (code !== undefined) watchGrows(sections, module, code)
  module.memories.forEach((_, i) => {
    const index = imported(module, 'memory') + i
    appendExport(sections, memoryExport(i), { kind: EXPORT_MEMORY, index })
  })
  const out = putTogether(sections)
  assert(WebAssembly.validate(out), 'a rewritten module is valid')
  return out
}

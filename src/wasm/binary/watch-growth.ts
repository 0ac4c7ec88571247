// Rewrites a valid core module so that its host can see two things that WASM hides: how large its memories became,
// and whether a growth was refused.
// 1. Every `memory.grow m` becomes a call to an appended function that grows and notes a refusal in a global.
// 2. That global and every own memory are exported under reserved names (growth.ts).
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
import { GROWTH_REFUSED, memoryExport } from '#wasm/binary/growth.ts'
import { stepInstruction } from '#wasm/binary/instructions.ts'
import { concat, putTogether, SECTION, type Sections, takeApart } from '#wasm/binary/sections.ts'

const MEMORY_GROW = 0x40
const CALL = 0x10
const FUNC_FORM = 0x60
const I32 = 0x7f
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

/** `(func (param i32) (result i32))`: grows memory `memory` and notes a refusal in global `refused`. */
function growFunction(memory: number, refused: number): number[] {
  const code = [0x00, 0x20, 0x00, MEMORY_GROW]
  pushU32(code, memory)
  // local.tee 0; i32.const -1; i32.eq; if; i32.const 1; global.set; end; local.get 0; end
  code.push(0x22, 0x00, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x41, 0x01, 0x24)
  pushU32(code, refused)
  code.push(0x0b, 0x20, 0x00, 0x0b)
  const sized: number[] = []
  pushU32(sized, code.length)
  return [...sized, ...code]
}

function rewrittenBody(
  code: Uint8Array,
  body: Body,
  functionOf: Map<number, number>,
): Uint8Array[] {
  const parts: Uint8Array[] = []
  let copied = body.start
  for (const { at, end, memory } of body.grows) {
    const call = [CALL]
    pushU32(call, functionOf.get(memory) ?? 0)
    parts.push(code.subarray(copied, at), Uint8Array.from(call))
    copied = end
  }
  parts.push(code.subarray(copied, body.end))
  const header: number[] = []
  pushU32(
    header,
    parts.reduce((sum, part) => sum + part.length, 0),
  )
  return [Uint8Array.from(header), ...parts]
}

function watchGrows(sections: Sections, module: CoreModule, code: Uint8Array): void {
  const bodies = readBodies(code)
  const memories = [...new Set(bodies.flatMap(({ grows }) => grows.map(({ memory }) => memory)))]
  if (memories.length === 0) return
  const typeIndex = vectorLength(sections, SECTION.type)
  const firstFunction = imported(module, 'func') + vectorLength(sections, SECTION.function)
  const refused = imported(module, 'global') + vectorLength(sections, SECTION.global)
  append(sections, SECTION.type, [FUNC_FORM, 1, I32, 1, I32])
  // (mut i32), starting at 0.
  append(sections, SECTION.global, [I32, 0x01, 0x41, 0x00, 0x0b])
  const functionOf = new Map(memories.map((memory, i) => [memory, firstFunction + i]))
  const typeBytes: number[] = []
  pushU32(typeBytes, typeIndex)
  for (const _ of memories) append(sections, SECTION.function, typeBytes)
  const head: number[] = []
  pushU32(head, bodies.length + memories.length)
  sections.bodies.set(SECTION.code, [
    Uint8Array.from(head),
    ...bodies.flatMap((body) => rewrittenBody(code, body, functionOf)),
    ...memories.map((memory) => Uint8Array.from(growFunction(memory, refused))),
  ])
  const exported: number[] = []
  pushName(exported, GROWTH_REFUSED)
  exported.push(EXPORT_GLOBAL)
  pushU32(exported, refused)
  append(sections, SECTION.export, exported)
}

/** The watched form of a module that V8 finds valid. Refuses UNSUPPORTED_…; the result is valid again. */
export function watchGrowth(bytes: Uint8Array): Uint8Array {
  const module = readCoreModule(bytes)
  const sections = takeApart(bytes)
  checkPlainTypes(sections.bodies.get(SECTION.type)?.[0])
  const code = sections.bodies.get(SECTION.code)?.[0]
  if (code !== undefined) watchGrows(sections, module, code)
  module.memories.forEach((_, i) => {
    const exported: number[] = []
    pushName(exported, memoryExport(i))
    exported.push(EXPORT_MEMORY)
    pushU32(exported, imported(module, 'memory') + i)
    append(sections, SECTION.export, exported)
  })
  const out = putTogether(sections)
  assert(WebAssembly.validate(out), 'a rewritten module is valid')
  return out
}

// Takes a core module apart into sections and puts it together again in the order the format asks for.
import { pushU32, sectionsOf, cursorOver, name } from '#wasm/binary/cursor.ts'

export const SECTION = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
  tag: 13,
} as const

const ORDER = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11]

/** Bodies by section id, each a list of parts to be written one after the other. */
export type Sections = { bodies: Map<number, Uint8Array[]>; custom: Uint8Array[] }

/** Keeps the `name` section (trap messages use it) and drops other custom ones: their code offsets would be wrong. */
export function takeApart(bytes: Uint8Array): Sections {
  const sections: Sections = { bodies: new Map(), custom: [] }
  for (const { id, start, end } of sectionsOf(bytes)) {
    const body = bytes.subarray(start, end)
    if (id !== SECTION.custom) sections.bodies.set(id, [body])
    else if (name(cursorOver(body)) === 'name') sections.custom.push(body)
  }
  return sections
}

export function putTogether(sections: Sections): Uint8Array {
  const parts: Uint8Array[] = [Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0)]
  const add = (id: number, body: Uint8Array[]): void => {
    const header = [id]
    pushU32(
      header,
      body.reduce((sum, part) => sum + part.length, 0),
    )
    parts.push(Uint8Array.from(header))
    // One by one: a call takes only as many arguments as fit the stack.
    for (const part of body) parts.push(part)
  }
  for (const id of ORDER) {
    const body = sections.bodies.get(id)
    if (body !== undefined) add(id, body)
  }
  for (const body of sections.custom) add(SECTION.custom, [body])
  return concat(parts)
}

export function concat(parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

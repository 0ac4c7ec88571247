// What is to change in one body: a list in the order of the bytes, filled by the walk (walk.ts) and carried out once
// the whole body is known (rewrite.ts). A charge's amount grows while the walk goes on.
import { FLOAT } from '#wasm/meter/instruction-set.ts'

/** `at` is where it goes; the bytes up to `until` are replaced. `value` is in brackets. */
export const EDIT = {
  none: 0,
  /** Adds [units] to what is owed. */
  charge: 1,
  /** At a loop's header: the same, and settles when more is owed than the edit before it, its `resume` or `none`, says. */
  loop: 2,
  /** Pays what is owed. */
  pay: 7,
  /** Pays, and ends the guest that has nothing left. */
  settle: 8,
  /** Where the function is left: as LEAVE says, and gives its depth back. */
  leave: 9,
  /** The end of the body: as `leave`. */
  end: 10,
  /** Where an exception was caught: what its thrower took of the depth is given back. */
  resume: 11,
  /** A global's index becomes [index]. */
  global: 12,
  /** A call of the function that grows memory, or table, [index] in place of the growth. */
  memoryGrow: 13,
  tableGrow: 14,
  /** A call of the function that charges for so many bytes, or elements. */
  bytes: 15,
  elements: 16,
  /** After arithmetic: its NaN becomes the canonical one if [1]. The same numbers as FLOAT's. */
  f32: FLOAT.f32,
  f64: FLOAT.f64,
  f32x4: FLOAT.f32x4,
  f64x2: FLOAT.f64x2,
} as const

/** Values of `leave` and `end`. `look`: settles; a body that is not counted pays. */
export const LEAVE = { pay: 0, paid: 1, look: 2 } as const

export type Edits = {
  count: number
  at: Int32Array
  until: Int32Array
  kind: Uint8Array
  value: Int32Array
}

const FIRST_CAPACITY = 4096

export const createEdits = (): Edits => ({
  count: 0,
  at: new Int32Array(FIRST_CAPACITY),
  until: new Int32Array(FIRST_CAPACITY),
  kind: new Uint8Array(FIRST_CAPACITY),
  value: new Int32Array(FIRST_CAPACITY),
})

export function grownTo(from: Int32Array, capacity: number): Int32Array {
  const to = new Int32Array(capacity)
  to.set(from)
  return to
}

function enlarge(edits: Edits): void {
  const capacity = edits.at.length * 2
  edits.at = grownTo(edits.at, capacity)
  edits.until = grownTo(edits.until, capacity)
  edits.value = grownTo(edits.value, capacity)
  const kind = new Uint8Array(capacity)
  kind.set(edits.kind)
  edits.kind = kind
}

/** Appends an insertion at byte `at`; returns its number. */
export function addEdit(edits: Edits, kind: number, at: number, value: number): number {
  const n = edits.count++
  if (n >= edits.at.length) enlarge(edits)
  edits.at[n] = at
  edits.until[n] = at
  edits.kind[n] = kind
  edits.value[n] = value
  return n
}

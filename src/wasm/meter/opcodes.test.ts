// Every instruction that is known: in a module that V8 runs, metered, with the same result.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { seededRandom, type Random } from '#lib/random.ts'
import { AppError } from '#lib/error.ts'
import { outcomeOf, standing } from '#wasm/fixtures/metered.ts'
import {
  ACT,
  ACTS,
  FUEL,
  IMMEDIATE,
  IMMEDIATES,
  NAMES,
  numberOf,
  SIGNATURES,
} from '#wasm/meter/instruction-set.ts'
import { DEPTH_UNITS, OWED_UNITS_MAX } from '#wasm/meter/budget.ts'
import { meterModule } from '#wasm/meter/meter.ts'

const leb = (n: number): number[] => (n < 128 ? [n] : [(n & 127) | 128, ...leb(n >>> 7)])
const sized = (bytes: number[]): number[] => [...leb(bytes.length), ...bytes]
const section = (id: number, bytes: number[]): number[] => [id, ...sized(bytes)]

const TYPES: Record<string, number> = { i: 0x7f, I: 0x7e, f: 0x7d, F: 0x7c, v: 0x7b, r: 0x70 }
const PREAMBLE = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]
const PREFIXES = [0, 0xfc, 0xfd, 0xfe]

/** The bytes of an opcode by its number. */
function opcode(instruction: number): number[] {
  const prefix = PREFIXES[Math.floor(instruction / numberOf(0xfc_00))]!
  return prefix === 0 ? [instruction] : [prefix, ...leb(instruction % numberOf(0xfc_00))]
}

/** Any of the bits of the type, NaNs with payloads among them; addresses stay small. */
function constant(type: string, random: Random, address: boolean): number[] {
  const bytes = (n: number): number[] => [...random.bytes(n)]
  const nan = random.below(4) === 0
  switch (type) {
    case 'i':
      return [0x41, ...leb(address ? 8 * random.below(8) : random.below(64))]
    case 'I':
      return [0x42, ...leb(random.below(64))]
    case 'f':
      return [0x43, ...bytes(2), ...(nan ? [0xa1, 0x7f] : bytes(2))]
    case 'F':
      return [0x44, ...bytes(6), ...(nan ? [0xf1, 0x7f] : bytes(2))]
    case 'v':
      return [0xfd, 0x0c, ...bytes(16)]
    default:
      return [0xd2, 0]
  }
}

/** Natural alignment that is valid for `name`. */
const alignment = (name: string): number => {
  if (!name.includes('atomic')) return 0
  if (/8/.test(name.replace(/^i\d+/, ''))) return 0
  if (/16/.test(name)) return 1
  return /^i64\.atomic\.(load|store|rmw\.)(?!\w*32)|wait64/.test(name) && !/32_u|store32/.test(name)
    ? 3
    : 2
}

/** What follows the opcode in the modules below. */
function immediates(instruction: number): number[] {
  const name = NAMES[instruction]!
  switch (IMMEDIATES[instruction] ?? IMMEDIATE.none) {
    case IMMEDIATE.index:
      return [0]
    case IMMEDIATE.indexes:
      return [0, 0]
    case IMMEDIATE.memory:
      return [alignment(name), 0]
    case IMMEDIATE.memoryLane:
      return [0, 0, 1]
    case IMMEDIATE.byte:
      return [0]
    case IMMEDIATE.bytes4:
      return [1, 2, 0xa1, 0x7f]
    case IMMEDIATE.bytes8:
      return [1, 2, 3, 4, 5, 6, 0xf1, 0x7f]
    case IMMEDIATE.bytes16:
      return Array.from({ length: 16 }, (_, i) => i)
    case IMMEDIATE.leb32:
      return name === 'ref.null' ? [0x70] : [0x80, 0x7f]
    case IMMEDIATE.leb64:
      return [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f]
    case IMMEDIATE.types:
      return [1, 0x7f]
    default:
      return []
  }
}

/**
 * A module with a memory, a table, a global, a local 0 of type i32 and the function `f`, whose code is given. Results are
 * stored at 1024 where they are no i32.
 */
function moduleOf(code: number[], results: number[]): Uint8Array {
  const body = [1, 2, 0x7f, ...code, 0x0b]
  const seed = Array.from({ length: 128 }, (_, i) => (i * 37 + 11) & 0xff)
  return Uint8Array.from([
    ...PREAMBLE,
    ...section(1, [2, 0x60, 0, results.length, ...results, 0x60, 0, 0]),
    ...section(3, [2, 0, 1]),
    ...section(4, [1, 0x70, 0, 4]),
    ...section(5, [1, 0, 1]),
    ...section(13, [1, 0, 1]),
    ...section(6, [1, 0x7f, 1, 0x41, 5, 0x0b]),
    ...section(7, [3, 1, 0x66, 0, 0, 1, 0x6d, 2, 0, 1, 0x67, 3, 0]),
    ...section(9, [2, 0, 0x41, 0, 0x0b, 1, 1, 1, 0, 1, 1]),
    ...section(12, [2]),
    ...section(10, [2, ...sized(body), ...sized([0, 0x0b])]),
    ...section(11, [2, 0, 0x41, 0, 0x0b, ...sized(seed), 1, 3, 1, 2, 3]),
  ])
}

/** What a module's `f` gives, its memory's first 2 KiB and its global. */
function observed(exports: Record<string, unknown>): unknown {
  const result = outcomeOf(exports, 'f')
  const { buffer } = exports['m'] as WebAssembly.Memory
  return [
    typeof result === 'function' ? 'a function' : result,
    Buffer.from(buffer, 0, 2048).toString('hex'),
    (exports['g'] as WebAssembly.Global).value,
  ]
}

function assertSame(bytes: Uint8Array, hint: string): void {
  assert.ok(
    WebAssembly.validate(new Uint8Array(bytes)),
    `${hint} is valid: ${Buffer.from(bytes).toString('hex')}`,
  )
  const plain = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes))).exports
  const expected = observed(plain)
  assert.deepEqual(observed(standing(bytes).exports), expected, hint)
  // Canonical NaNs change the bits of NaNs only; that they are valid is what is asked here.
  if (!hint.includes('relaxed')) standing(bytes, { canonicalNaNs: true })
}

/** Operands, the instruction, and its result where the host can see it. */
function plainCode(instruction: number, random: Random): { code: number[]; results: number[] } {
  const [operands = '', results = ''] = (SIGNATURES[instruction] ?? ':')
    .replaceAll('x', 'i')
    .split(':')
  const usesMemory =
    IMMEDIATES[instruction] === IMMEDIATE.memory || IMMEDIATES[instruction] === IMMEDIATE.memoryLane
  const pushed = Array.from(operands).flatMap((type, i) =>
    constant(type, random, usesMemory && i === 0),
  )
  const isTable = NAMES[instruction]!.startsWith('table')
  const before =
    NAMES[instruction] === 'ref.eq'
      ? [0xd0, 0x6d, 0xd0, 0x6d]
      : isTable
        ? Array.from(operands).flatMap((type) => (type === 'i' ? [0x41, 1] : [0xd2, 0]))
        : pushed
  const code = [...before, ...opcode(instruction), ...immediates(instruction)]
  if (results === 'v') return { code: [0x41, ...leb(512), 0x21, 1, ...storing(code)], results: [] }
  return { code, results: Array.from(results).map((type) => TYPES[type]!) }
}

/** A vector is stored: it cannot leave. */
const storing = (code: number[]): number[] => [0x20, 1, ...code, 0xfd, 0x0b, 0, 0]

test('FN-2 each plain instruction gives metered what it gave before', (t) => {
  const seed = process.env['CLUTCH_SEED'] ?? 'opcodes'
  t.diagnostic(`seed ${seed}`)
  const random = seededRandom(seed)
  let tried = 0
  ACTS.forEach((act, instruction) => {
    if (act !== ACT.plain) return
    for (let turn = 0; turn < 2; turn++) {
      const { code, results } = plainCode(instruction, random)
      assertSame(moduleOf(code, results), NAMES[instruction]!)
    }
    tried++
  })
  assert.ok(tried > 480, `${tried} instructions`)
})

/** One module for each act that is not plain, its code in hex with a result i32. */
const SPECIAL: Record<string, string> = {
  unreachable: '4101 00',
  block: '02 7f 4107 0b',
  loop: '03 7f 4107 0b',
  if: '4101 04 7f 4102 05 4103 0b',
  else: '4100 04 7f 4102 05 4103 0b',
  try: '06 7f 4107 19 4108 0b',
  catch: '06 7f 08 00 4109 07 00 410a 0b',
  throw: '06 7f 08 00 19 410b 0b',
  rethrow: '06 7f 06 7f 08 00 19 09 00 0b 19 410c 0b',
  throw_ref: '02 69 1f 40 01 03 00 08 00 0b 00 0b 0a 00',
  end: '02 40 0b 4101',
  br: '02 7f 4107 0c 00 0b',
  br_if: '02 7f 4107 4101 0d 00 0b',
  br_table: '02 7f 02 7f 4107 4101 0e 01 00 01 0b 1a 4108 0b',
  return: '4107 0f',
  call: '10 01 4107',
  call_indirect: '4100 11 01 00 4107',
  return_call: '4101 04 40 4105 0f 0b 12 00',
  return_call_indirect: '4101 04 40 4105 0f 0b 4103 13 00 00',
  call_ref: 'd2 01 14 01 4107',
  return_call_ref: '4101 04 40 4105 0f 0b d2 00 15 00',
  delegate: '06 7f 06 7f 4107 18 00 19 4108 0b',
  catch_all: '06 40 08 00 19 0b 4107',
  try_table: '02 40 1f 40 01 00 00 00 08 00 0b 0b 4107',
  'global.get': '23 00',
  'global.set': '4107 24 00 4101',
  'memory.grow': '4101 40 00',
  br_on_null: '02 40 d0 70 d5 00 1a 0b 4107',
  br_on_non_null: '02 64 70 d2 01 d6 00 4107 0f 0b 1a 4108',
  'memory.init': '4100 4100 4103 fc 08 01 00 4101',
  'memory.copy': '4100 4110 4108 fc 0a 00 00 4101',
  'memory.fill': '4100 4107 4108 fc 0b 00 4101',
  'table.init': '4100 4100 4101 fc 0c 01 00 4101',
  'table.copy': '4100 4101 4101 fc 0e 00 00 4101',
  'table.grow': 'd0 70 4101 fc 0f 00',
  'table.fill': '4100 d0 70 4101 fc 11 00 4101',
}

test('FN-2 each instruction with a handler of its own gives metered what it gave before', () => {
  const names = NAMES.filter((_, n) => ACTS[n] !== ACT.plain && ACTS[n] !== ACT.refused)
  assert.deepEqual(new Set(names), new Set(Object.keys(SPECIAL)))
  for (const [name, hex] of Object.entries(SPECIAL))
    assertSame(moduleOf([...Buffer.from(hex.replaceAll(' ', ''), 'hex')], [0x7f]), name)
})

test('FN-2 every opcode that is not in the table is refused by its code and its place', () => {
  let refused = 0
  for (const prefix of [0, 0xfb, 0xfc, 0xfd, 0xfe, 0xff])
    for (let code = 0; code < (prefix === 0 ? 0xfb : 0x180); code++) {
      const bytes = prefix === 0 ? [code] : [prefix, ...leb(code)]
      if (
        NAMES[prefix === 0 ? code : numberOf((prefix << 8) | 0) + code] !== undefined &&
        prefix !== 0xfb &&
        prefix !== 0xff
      )
        continue
      refused++
      const module = moduleOf(bytes, [])
      assert.throws(
        () => meterModule(module, { canonicalNaNs: false }),
        (error) =>
          error instanceof AppError &&
          /^the code uses instruction 0x[0-9a-f]{2}.* at byte \d+/.test(error.message),
        `${prefix.toString(16)} ${code.toString(16)}`,
      )
    }
  assert.ok(refused > 1000, `${refused}`)
})

test('FN-3 the documented schedule names every instruction that is free', () => {
  const page = readFileSync(new URL('../../../docs/concepts/metering.md', import.meta.url), 'utf8')
  const row = /^\| (`unreachable`.*) \| 0 \|$/m.exec(page)?.[1] ?? ''
  const documented = [...row.matchAll(/`(\w+)`/g)].map(([, name]) => name)
  assert.deepEqual(
    new Set(NAMES.filter((name, n) => name !== undefined && FUEL[n] === 0)),
    new Set(documented),
  )
  assert.ok(page.includes(DEPTH_UNITS.toLocaleString('en')))
  assert.ok(page.includes(`${OWED_UNITS_MAX.toLocaleString('en')} units`))
})

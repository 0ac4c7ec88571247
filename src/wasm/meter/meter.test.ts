import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { call, meterFor, outcomeOf, standing, standingWat } from '#wasm/fixtures/metered.ts'
import { METER_MODULE, OWED_UNITS_MAX } from '#wasm/meter/budget.ts'
import { meterModule } from '#wasm/meter/meter.ts'

const example = (name: string): Uint8Array =>
  readFileSync(new URL(`../../../examples/${name}`, import.meta.url))

const PAGE = 65_536

/** Fuel that one call of `f` burns. */
async function fuelOf(body: string, ...args: unknown[]): Promise<number> {
  const { exports, meter } = await standingWat(`(module ${body})`)
  call(exports, 'f', ...args)
  return meter.fuelUsed()
}

const MIDDLE =
  '(func (export "f") (param i32) (block $b (br_if $b (local.get 0)) (drop (i32.const 1)) return) (drop (i32.const 2)))'

test('FN-3 fuel: each instruction costs 1, those that only structure cost nothing', async () => {
  const golden: [units: number, body: string, ...args: unknown[]][] = [
    [0, '(func (export "f"))'],
    [0, '(func (export "f") nop (block nop) (loop nop) return)'],
    [3, '(func (export "f") (result i32) (i32.add (i32.const 1) (i32.const 2)))'],
    [1, '(func (export "f") (drop (i32.const 1)))'],
    // local.get, if, and one arm.
    [
      5,
      '(func (export "f") (param i32) (if (local.get 0) (then (drop (i32.add (i32.const 1) (i32.const 2)))) (else (drop (i32.const 1)))))',
      1,
    ],
    [
      3,
      '(func (export "f") (param i32) (if (local.get 0) (then (drop (i32.add (i32.const 1) (i32.const 2)))) (else (drop (i32.const 1)))))',
      0,
    ],
    // Ten passes of seven, and what follows.
    [
      70 + 1,
      '(func (export "f") (local i32) (loop $l (br_if $l (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 10)))) (drop (i32.const 0)))',
    ],
    // A call and what it calls.
    [1 + 2, '(func $g (drop (i32.const 1)) (drop (i32.const 2))) (func (export "f") call $g)'],
    [
      2 + 2,
      '(table funcref (elem $g)) (func $g (drop (i32.const 1)) (drop (i32.const 2))) (func (export "f") (call_indirect (i32.const 0)))',
    ],
    // Left in the middle by a branch, and by a return: what is not run is not charged.
    [3, MIDDLE, 1],
    [3, MIDDLE, 0],
  ]
  for (const [units, body, ...args] of golden)
    assert.equal(await fuelOf(body, ...args), units, body)
})

test('FN-3 fuel: what works on much costs by how much', async () => {
  const memory =
    '(memory 4) (table $t 64 funcref) (data $d "0123456789abcdef") (elem $e func $g $g) (func $g)'
  const three = (a: number, b: number, n: number): string =>
    `(i32.const ${a}) (i32.const ${b}) (i32.const ${n})`
  const golden: [number, string][] = [
    [4 + 65_536 / 16, `(memory.fill ${three(0, 1, 65_536)})`],
    [4 + 0, `(memory.fill ${three(0, 1, 15)})`],
    [4 + 100, `(memory.copy ${three(0, 1, 1600)})`],
    [4 + 1, `(memory.init $d ${three(0, 0, 16)})`],
    [4 + 1, `(table.init $t $e ${three(0, 0, 2)})`],
    [4 + 8, `(table.copy $t $t ${three(0, 1, 16)})`],
    [4 + 16, '(table.fill $t (i32.const 0) (ref.null func) (i32.const 32))'],
    [3 + 50, '(drop (table.grow $t (ref.null func) (i32.const 100)))'],
    [2 + 3 * 1024, '(drop (memory.grow (i32.const 3)))'],
  ]
  for (const [units, body] of golden)
    assert.equal(await fuelOf(`${memory} (func (export "f") ${body})`), units, body)
})

test('FN-3 fuel: a guest that burns all of it is ended, wherever it spins', async () => {
  const spins = [
    '(func (export "f") (loop $l (br $l)))',
    '(func $g) (func (export "f") (loop $l (call $g) (br $l)))',
    '(func $g (call $h)) (func $h) (func (export "f") (loop $l (call $g) (br $l)))',
    '(table funcref (elem $g)) (func $g) (func (export "f") (loop $l (call_indirect (i32.const 0)) (br $l)))',
    '(func $f (export "f") (return_call $f))',
    '(func $f (export "f") (return_call $g)) (func $g (return_call $f))',
    '(type $t (func)) (elem declare func $g) (func $g) (func (export "f") (loop $l (call_ref $t (ref.func $g)) (br $l)))',
    '(tag $t) (func (export "f") (loop $l (block $b (try_table (catch $t $b) (throw $t))) (br $l)))',
    '(tag $t) (func (export "f") (loop $l (try_table (catch $t $l) (throw $t))))',
    '(tag $t) (func (export "f") (loop $l try throw $t catch_all end (br $l)))',
    '(memory 1) (func (export "f") (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l)))',
    '(import "a" "b" (func $host)) (func (export "f") (loop $l (call $host) (br $l)))',
  ]
  for (const spin of spins) {
    const { exports, meter } = await standingWat(`(module ${spin})`, {
      fuelMax: 1_000_000,
      imports: { a: { b: () => {} } },
    })
    assert.match(String(outcomeOf(exports, 'f')), /^trap: unreachable/, spin)
    assert.equal(meter.passed(), 'fuel', spin)
    assert.equal(meter.fuelUsed(), 1_000_000, spin)
  }
})

test('FN-3 fuel: recursion that doubles at each step is ended', async () => {
  const chain = Array.from(
    { length: 60 },
    (_, i) => `(func $f${i} ${i === 0 ? '' : `(call $f${i - 1}) (call $f${i - 1})`})`,
  ).join(' ')
  const { exports, meter } = await standingWat(
    `(module ${chain} (func (export "f") (call $f59)))`,
    { fuelMax: 1_000_000 },
  )
  assert.match(String(outcomeOf(exports, 'f')), /^trap/)
  assert.equal(meter.passed(), 'fuel')
})

test('FN-3 fuel: a trap forgets no more than a loop may owe', async () => {
  const { exports, meter } = await standingWat(
    `(module (memory 1) (func (export "f") (local i32)
      (loop $l (drop (i32.load (local.get 0))) (local.set 0 (i32.add (local.get 0) (i32.const 4))) (br $l))))`,
  )
  assert.match(String(outcomeOf(exports, 'f')), /memory access/)
  const passes = PAGE / 4
  const exact = 7 * passes
  assert.ok(meter.fuelUsed() <= exact && meter.fuelUsed() > exact - OWED_UNITS_MAX - 7)
})

test('FN-3 fuel: modules of one invocation share it', async () => {
  const meter = meterFor({ fuelMax: 1000 })
  const inner = await standingWat('(module (func (export "g") (drop (i32.const 1))))', { meter })
  const outer = await standingWat(
    '(module (import "a" "g" (func $g)) (func (export "f") (call $g) (call $g)))',
    { meter, imports: { a: { g: inner.exports['g'] } } },
  )
  call(outer.exports, 'f')
  assert.equal(meter.fuelUsed(), 4)
})

test('FN-4 growth within the budget works as before, growth past it answers -1 and is noted', async () => {
  const { exports, meter } = await standingWat(
    '(module (memory 1) (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))',
    { memMb: 2 },
  )
  assert.equal(call(exports, 'grow', 30), 1)
  assert.equal(meter.refused(), false)
  assert.equal(call(exports, 'grow', 2), -1)
  assert.equal(meter.refused(), true)
  assert.equal(call(exports, 'grow', -1), -1)
  assert.equal(call(exports, 'grow', 1), 31)
  assert.equal(meter.bytes(), 32 * PAGE)
})

test('FN-4 growth past a memory’s own maximum is its own affair, and costs nothing', async () => {
  const { exports, meter } = await standingWat(
    '(module (memory 1 3) (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))',
  )
  assert.equal(call(exports, 'grow', 3), -1)
  assert.equal(meter.refused(), false)
  assert.equal(meter.fuelUsed(), 2)
  assert.equal(call(exports, 'grow', 2), 1)
  assert.equal(meter.bytes(), 3 * PAGE)
})

test('FN-4 imported and further memories share the budget, and keep their indexes', async () => {
  const imported = new WebAssembly.Memory({ initial: 1, maximum: 3 })
  const { exports, meter } = await standingWat(
    `(module (import "a" "m" (memory 1)) (import "a" "g" (global $g i32)) (import "a" "f" (func)) (memory $n 2)
      (global $own (mut i32) (i32.const 5)) (global $copy i32 (global.get $g)) (global $two i32 (global.get $copy))
      (func $before (result i32) (i32.add (global.get $own) (global.get $two)))
      (func (export "first") (param i32) (result i32) (memory.grow 0 (local.get 0)))
      (func (export "second") (param i32) (result i32) (memory.grow $n (local.get 0)))
      (export "sum" (func $before)) (export "own" (global $own)) (export "two" (global $two)))`,
    { memMb: 1, imports: { a: { m: imported, g: 7, f: () => {} } } },
  )
  assert.equal(call(exports, 'sum'), 12)
  assert.deepEqual(
    ['own', 'two'].map((name) => Reflect.get(exports[name] as object, 'value')),
    [5, 7],
  )
  assert.equal(call(exports, 'first', 2), 1)
  assert.equal(imported.buffer.byteLength, 3 * PAGE)
  // The budget had 14 pages left of the 16; the maximum of an imported one is not known here: not noted.
  assert.equal(call(exports, 'first', 1), -1)
  assert.equal(meter.refused(), false)
  assert.equal(call(exports, 'second', 12), 2)
  assert.equal(call(exports, 'second', 1), -1)
  assert.equal(meter.refused(), true)
  assert.equal(meter.bytes(), 16 * PAGE)
})

test('FN-4 tables take of the budget too, at the start and as they grow', async () => {
  const wat = (min: number): string => `(module (table $t ${min} externref)
    (func (export "grow") (param i32) (result i32) (table.grow $t (ref.null extern) (local.get 0))))`
  const { exports, meter } = await standingWat(wat(1000), { memMb: 1 })
  assert.equal(meter.bytes(), 16_000)
  assert.equal(call(exports, 'grow', 60_000), 1000)
  assert.equal(call(exports, 'grow', 10_000), -1)
  assert.equal(meter.refused(), true)
  assert.equal(meter.bytes(), 61_000 * 16)
  await assert.rejects(standingWat(wat(100_000), { memMb: 1 }), /2 MiB together; memMb allows 1/)
})

test('FN-4 growth inside every kind of block, and in a start function, is counted', async () => {
  const { exports, meter } = await standingWat(
    `(module (memory 1) (table 1 funcref) (type $t (func (result i32)))
      (func $start (drop (memory.grow (i32.const 2)))) (start $start)
      (func $g (result i32) (memory.grow (i32.const 100)))
      (elem (i32.const 0) $g)
      (func (export "f") (result i32) (local i64 i64 f32 f64 v128 externref)
        (block (result i32) (loop (result i32)
          (if (result i32) (i32.const 1)
            (then (memory.grow (call_indirect (type $t) (i32.const 0))))
            (else (memory.grow (i32.const 0))))))))`,
    { memMb: 1 },
  )
  assert.equal(meter.bytes(), 3 * PAGE + 16)
  assert.equal(call(exports, 'f'), -1)
  assert.equal(meter.refused(), true)
})

/** Ways out of a function, each beside exceptions caught in the newer and the older form, which a module may not mix. */
const LEAVE = (caught: string): string => `(module (tag $t) (import "a" "b" (func $host))
  (func $deep (param i32)
    (if (local.get 0) (then (call $deep (i32.sub (local.get 0) (i32.const 1)))) (else (throw $t))))
  (func $leave (param i32) (result i32)
    (call $host)
    (if (i32.eq (local.get 0) (i32.const 0)) (then (return (i32.const 1))))
    (block $b (br_if 1 (i32.const 2) (i32.eq (local.get 0) (i32.const 1))) drop)
    ${caught}
    (if (i32.eq (local.get 0) (i32.const 2)) (then (return_call $leave (i32.const 0))))
    (br_table 0 0 (i32.const 3) (i32.const 0)))
  (func (export "f") (param i32) (local i32)
    (loop $l
      (drop (call $leave (local.get 0)))
      (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 20000))))))`

const CAUGHT = [
  `(block $c (try_table (catch $t $c) (call $deep (i32.const 50))))
   (block $d (block $o (try_table (catch_all $o) (call $deep (i32.const 50))) (br $d)))`,
  `try i32.const 50 call $deep catch $t end
   try i32.const 50 call $deep catch_all end
   try try i32.const 50 call $deep delegate 0 catch_all end`,
]

test('FN-3 depth: it is counted down and given back however a function is left', async () => {
  for (const caught of CAUGHT) {
    const bounds = { imports: { a: { b: () => {} } } }
    const { exports, meter } = await standingWat(LEAVE(caught), bounds)
    for (const way of [0, 1, 2, 3]) assert.equal(outcomeOf(exports, 'f', way), undefined, `${way}`)
    assert.equal(meter.passed(), undefined)
  }
})

test('FN-3 depth: what is caught deep in a loop does not add up', async () => {
  const { exports } = await standingWat(
    `(module (tag $t) (import "a" "b" (func $host))
      (func $thrower (call $host) (throw $t))
      (func (export "f") (local i32)
        (loop $again
          (br_if 1 (i32.gt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 50000)))
          (try_table (catch $t $again) (call $thrower)))))`,
    { imports: { a: { b: () => {} } } },
  )
  assert.equal(outcomeOf(exports, 'f'), undefined)
})

test('FN-2 modules of real toolchains stay valid, keep their exports and lose their debug sections', () => {
  for (const file of ['probe/probe.core.wasm', 'word-count/word-count.core.wasm'])
    for (const canonicalNaNs of [false, true]) {
      const bytes = example(file)
      const out = meterModule(bytes, { canonicalNaNs })
      const exportsOf = (of: Uint8Array): string[] =>
        WebAssembly.Module.exports(new WebAssembly.Module(new Uint8Array(of))).map(
          ({ name }) => name,
        )
      assert.deepEqual(exportsOf(out), exportsOf(bytes))
      assert.ok(!Buffer.from(out).includes('.debug_'))
      assert.ok(Buffer.from(out).includes(METER_MODULE))
    }
})

test('FN-3 a trap names the functions it happened in, as the module names them', async () => {
  const { exports } = await standingWat(
    `(module (import "a" "b" (func)) (memory 1)
      (func $inner (param i32) (drop (i32.load (local.get 0))))
      (func $outer (export "f") (drop (memory.grow (i32.const 0))) (call $inner (i32.const -1))))`,
    { imports: { a: { b: () => {} } } },
  )
  let stack = ''
  try {
    call(exports, 'f')
  } catch (error) {
    stack = String(Reflect.get(error as object, 'stack'))
  }
  assert.match(stack, /inner[^]*outer/)
})

test('FN-2 garbage-collected types and instructions, shared and 64-bit memories are refused by name', async () => {
  const refused: [RegExp, string][] = [
    [/type of form 0x5f/, '(module (type (struct)))'],
    [/0xfb 28 \(ref\.i31\) at byte \d+/, '(module (func (drop (ref.i31 (i32.const 1)))))'],
    [/shared memory/, '(module (memory 1 2 shared) (func))'],
    [/64-bit memory/, '(module (memory i64 1) (func))'],
    [/table flags/, '(module (table i64 1 funcref) (func))'],
  ]
  for (const [message, wat] of refused) {
    const bytes = await parse(wat)
    assert.throws(() => meterModule(bytes, { canonicalNaNs: false }), message)
  }
  const relaxed = await parse(
    '(module (func (param v128) (drop (f32x4.relaxed_min (local.get 0) (local.get 0)))))',
  )
  assert.ok(meterModule(relaxed, { canonicalNaNs: false }))
  assert.throws(
    () => meterModule(relaxed, { canonicalNaNs: true }),
    /f32x4\.relaxed_min at byte \d+/,
  )
})

test('FN-2 hundreds of thousands of growths, functions and nested blocks are metered', async () => {
  const grows = '(drop (memory.grow (i32.const 0)))'.repeat(200_000)
  const functions = '(func)'.repeat(300_000)
  standing(await parse(`(module (memory 1) (func ${grows}) ${functions})`))
  const depth = 50_000
  const body = [
    ...Array.from({ length: depth }, () => [0x02, 0x40]).flat(),
    ...Array.from({ length: depth }, () => 0x0b),
    0x0b,
  ]
  const leb = (n: number): number[] => (n < 128 ? [n] : [(n & 127) | 128, ...leb(n >>> 7)])
  const code = [1, ...leb(body.length + 1), 0, ...body]
  const module = [
    0,
    0x61,
    0x73,
    0x6d,
    1,
    0,
    0,
    0,
    1,
    4,
    1,
    0x60,
    0,
    0,
    3,
    2,
    1,
    0,
    10,
    ...leb(code.length),
    ...code,
  ]
  standing(Uint8Array.from(module))
})

test('FN-2 a module without memory or code comes out as valid as it was', async () => {
  for (const wat of [
    '(module)',
    '(module (func))',
    '(module (memory 1))',
    '(module (table 1 funcref))',
  ])
    standing(await parse(wat))
})

test('FN-2 every form of segment and constant keeps its meaning when globals move', async () => {
  const { exports } = await standingWat(
    `(module (import "a" "base" (global $base i32)) (import "a" "ref" (global $ref externref))
      (global $own i32 (i32.add (global.get $base) (i32.const 1)))
      (global $again i32 (global.get $own)) (global $f funcref (ref.func $one))
      (memory 1) (memory $m 1) (table $t 20 funcref) (table $x 3 externref (global.get $ref)) (table $g 4 funcref (ref.func $one))
      (func $one (result i32) (i32.const 1)) (func $two (result i32) (i32.const 2))
      (elem (i32.const 0) $one $two) (elem $p func $two) (elem (table $t) (global.get $own) func $two)
      (elem declare func $one) (elem (i32.const 10) funcref (ref.func $one) (global.get $f)) (elem $q funcref (ref.null func))
      (elem (table $t) (offset (global.get $again)) funcref (global.get $f)) (elem declare funcref (ref.func $two))
      (data (global.get $own) "A") (data $d "B") (data (memory $m) (offset (global.get $again)) "C")
      (export "again" (global $again))
      (func (export "call") (param i32) (result i32) (call_indirect (result i32) (local.get 0)))
      (func (export "x") (result externref) (table.get $x (i32.const 2)))
      (func (export "g") (result i32) (call_indirect $g (result i32) (i32.const 3)))
      (func (export "byte") (result i32) (i32.add (i32.load8_u (global.get $own)) (i32.load8_u $m (global.get $own)))))`,
    { imports: { a: { base: 4, ref: 'held' } } },
  )
  assert.deepEqual(
    [0, 1, 5, 10, 11].map((i) => call(exports, 'call', i)),
    [1, 2, 1, 1, 1],
  )
  assert.equal(call(exports, 'x'), 'held')
  assert.equal(call(exports, 'g'), 1)
  assert.equal(call(exports, 'byte'), 65 + 67)
})

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { AppError } from '#lib/error.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { GRANT, GROWTH_REFUSED, memoryExport } from '#wasm/binary/growth.ts'
import { limitMemory } from '#wasm/binary/limit-memory.ts'
import { watchGrowth } from '#wasm/binary/watch-growth.ts'

const example = (name: string): Uint8Array =>
  readFileSync(new URL(`../../../examples/${name}`, import.meta.url))

async function instanceOf(
  wat: string,
  memMb: number,
  imports: WebAssembly.Imports = {},
): Promise<Record<string, unknown>> {
  const bytes = limitMemory(watchGrowth(await parse(wat)), memMb)
  return new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes)), imports).exports
}

const call = (exports: Record<string, unknown>, name: string, ...args: unknown[]): unknown => {
  const found = exports[name]
  assert.ok(typeof found === 'function')
  return found(...args)
}

const globalValue = (value: unknown): unknown => {
  assert.ok(value instanceof WebAssembly.Global)
  return value.value
}

const bytesOf = (value: unknown): number => {
  assert.ok(value instanceof WebAssembly.Memory)
  return value.buffer.byteLength
}

test('FN-4 growth within the cap works as before, growth past it answers -1 and is noted', async () => {
  const exports = await instanceOf(
    '(module (memory 1) (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))',
    2,
  )
  assert.equal(call(exports, 'grow', 30), 1)
  assert.equal(globalValue(exports[GROWTH_REFUSED]), 0)
  assert.equal(call(exports, 'grow', 2), -1)
  assert.equal(globalValue(exports[GROWTH_REFUSED]), 1)
  assert.equal(call(exports, 'grow', 1), 31)
  assert.equal(bytesOf(exports[memoryExport(0)]), 32 * 65536)
})

test('FN-4 imported and further memories are told apart', async () => {
  const imported = new WebAssembly.Memory({ initial: 1, maximum: 3 })
  const exports = await instanceOf(
    `(module (import "a" "m" (memory 1)) (import "a" "g" (global i32)) (import "a" "f" (func)) (memory $n 2)
      (global $own (mut i32) (i32.const 5)) (func $before (result i32) (global.get $own))
      (func (export "first") (param i32) (result i32) (memory.grow 0 (local.get 0)))
      (func (export "second") (param i32) (result i32) (call $before) drop (memory.grow $n (local.get 0))))`,
    1,
    { a: { m: imported, g: 7, f: () => {} } },
  )
  assert.equal(call(exports, 'first', 2), 1)
  assert.equal(imported.buffer.byteLength, 3 * 65536)
  assert.equal(call(exports, 'second', 14), 2)
  assert.equal(globalValue(exports[GROWTH_REFUSED]), 0)
  assert.equal(call(exports, 'second', 1), -1)
  assert.equal(bytesOf(exports[memoryExport(0)]), 16 * 65536)
})

test('FN-4 growth inside every kind of block is found', async () => {
  const exports = await instanceOf(
    `(module (memory 1) (table 1 funcref) (type $t (func (result i32)))
      (func $g (result i32) (memory.grow (i32.const 100)))
      (elem (i32.const 0) $g)
      (func (export "f") (result i32) (local i64 i64 f32 f64 v128 externref)
        (block (result i32) (loop (result i32)
          (if (result i32) (i32.const 1)
            (then (memory.grow (call_indirect (type $t) (i32.const 0))))
            (else (memory.grow (i32.const 0))))))))`,
    1,
  )
  assert.equal(call(exports, 'f'), -1)
  assert.equal(globalValue(exports[GROWTH_REFUSED]), 1)
})

/** One of each shape of immediate. */
const EVERYTHING = `(module
  (memory 1) (table $t 2 funcref) (table $x 1 externref) (elem $e func $leaf) (data $d "abc") (tag $tag (param i32))
  (global $g (mut i64) (i64.const -9223372036854775808))
  (type $v (func)) (func $leaf)
  (func (export "all") (param i32) (result i32) (local v128 f64)
    (block $b (br_if $b (i32.const 0)) (br_table $b $b $b (i32.const 9)))
    (drop (i64.const -9223372036854775808)) (drop (f32.const nan)) (drop (f64.const -0.1))
    (drop (i64.load offset=4294967295 align=1 (i32.const 0)))
    (i32.store8 offset=3 (i32.const 0) (i32.const 1))
    (global.set $g (i64.extend32_s (global.get $g)))
    (drop (i32.trunc_sat_f64_u (f64.const 1e300)))
    (memory.copy (i32.const 0) (i32.const 1) (i32.const 2)) (memory.fill (i32.const 0) (i32.const 1) (i32.const 2))
    (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d)
    (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1)) (elem.drop $e)
    (table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 0))
    (drop (table.grow $x (ref.null extern) (i32.const 1))) (drop (table.size $x))
    (table.fill $x (i32.const 0) (ref.null extern) (i32.const 1))
    (table.set $t (i32.const 0) (ref.func $leaf)) (drop (ref.is_null (table.get $t (i32.const 0))))
    (drop (select (result externref) (ref.null extern) (ref.null extern) (i32.const 1)))
    (call_indirect $t (type $v) (i32.const 0))
    (drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 (v128.const i64x2 1 2) (v128.const i32x4 1 2 3 4)))
    (drop (i32x4.extract_lane 3 (i32x4.splat (i32.const 1)))) (drop (v128.load32_zero offset=9 (i32.const 0)))
    (drop (v128.load8_lane offset=1 15 (i32.const 0) (v128.const i64x2 0 0)))
    (drop (f64x2.relaxed_madd (local.get 1) (local.get 1) (local.get 1)))
    (drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1))) (atomic.fence)
    (block $c (result i32) (try_table (catch $tag $c) (throw $tag (i32.const 1))) (i32.const 2)) drop
    (memory.grow (local.get 0))))`

test('FN-4 one of every shape of instruction is stepped over', async () => {
  const bytes = await parse(EVERYTHING)
  assert.ok(WebAssembly.validate(new Uint8Array(bytes)))
  const out = watchGrowth(bytes)
  assert.ok(WebAssembly.validate(new Uint8Array(out)))
})

test('FN-4 modules of real toolchains stay valid, keep their names and lose their debug sections', () => {
  for (const file of ['probe/probe.core.wasm', 'word-count/word-count.core.wasm']) {
    const out = watchGrowth(example(file))
    const names = WebAssembly.Module.exports(new WebAssembly.Module(new Uint8Array(out))).map(
      ({ name }) => name,
    )
    assert.ok(
      names.includes('_start') && names.includes(GROWTH_REFUSED) && names.includes(memoryExport(0)),
    )
    assert.ok(!Buffer.from(out).includes('.debug_'))
  }
})

test('FN-4 growth asks the host once it has been told whom to ask', async () => {
  const exports = await instanceOf(
    `(module (memory 1) (table 3 funcref)
      (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))`,
    2,
  )
  assert.equal(call(exports, 'grow', 1), 1)
  const table = exports[GRANT]
  assert.ok(table instanceof WebAssembly.Table)
  const even = await instanceOf(
    '(module (func (export "f") (param i32) (result i32) (i32.eqz (i32.and (local.get 0) (i32.const 1)))))',
    1,
  )
  table.set(0, even['f'])
  assert.equal(call(exports, 'grow', 3), -1)
  assert.equal(globalValue(exports[GROWTH_REFUSED]), 1)
  assert.equal(call(exports, 'grow', 4), 2)
})

test('FN-2 hundreds of thousands of growths and functions are rewritten', async () => {
  const grows = '(drop (memory.grow (i32.const 0)))'.repeat(200_000)
  const functions = '(func)'.repeat(300_000)
  const out = watchGrowth(await parse(`(module (memory 1) (func ${grows}) ${functions})`))
  assert.ok(WebAssembly.validate(new Uint8Array(out)))
})

test('FN-4 a module without memory or code comes out as valid as it was', async () => {
  for (const wat of [
    '(module)',
    '(module (func))',
    '(module (memory 1))',
    '(module (import "a" "b" (memory 1)))',
  ])
    assert.ok(WebAssembly.validate(new Uint8Array(watchGrowth(await parse(wat)))), wat)
})

const CASES = process.env['CLUTCH_SOAK'] === undefined ? 2000 : 100_000

test(`FN-2 ${CASES} mutated modules that V8 accepts are rewritten validly or refused`, async (t) => {
  const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
  t.diagnostic(`seed ${seed}`)
  const random = seededRandom(seed)
  const sources = [example('probe/probe.core.wasm'), await parse(EVERYTHING)]
  let valid = 0
  for (let i = 0; i < CASES; i++) {
    const bytes = Uint8Array.from(sources[i % 2]!)
    for (let left = 1 + random.below(3); left > 0; left--)
      bytes[8 + random.below(bytes.length - 8)] = random.below(256)
    if (!WebAssembly.validate(bytes)) continue
    valid++
    try {
      assert.ok(WebAssembly.validate(new Uint8Array(limitMemory(watchGrowth(bytes), 64))))
    } catch (error) {
      assert.ok(error instanceof AppError, `seed ${seed}, case ${i}: ${String(error)}`)
    }
  }
  assert.ok(valid > CASES / 10, `${valid} valid`)
})

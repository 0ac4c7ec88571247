// FN-2: mutated core modules are refused with a clear error or metered into a valid one, and nothing else.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { AppError } from '#lib/error.ts'
import { type Random, seededRandom, systemRandom } from '#lib/random.ts'
import { readCoreModule } from '#wasm/binary/core-module.ts'
import { generatedModule } from '#wasm/fixtures/generated-module.ts'
import { meterModule } from '#wasm/meter/meter.ts'

const SOAK = process.env['CLUTCH_SOAK'] !== undefined
const CASES = SOAK ? 10_000 : 3_000

/** One of each shape of instruction and section. */
const EVERYTHING = `(module
  (import "a" "g" (global $in i32)) (import "a" "f" (func $host (param i32)))
  (memory 1) (memory $m 1 3) (table $t 2 funcref) (table $x 1 externref) (elem $e func $leaf) (elem (i32.const 0) $leaf)
  (data $d "abc") (tag $tag (param i32))
  (global $g (mut i64) (i64.const -9223372036854775808)) (global $c i32 (global.get $in))
  (type $v (func)) (func $leaf) (start $leaf)
  (func $pair (result i32 i64) (i32.const 1) (i64.const 2))
  (func (export "all") (param i32) (result i32) (local v128 f64)
    (block $b (br_if $b (i32.const 0)) (br_table $b $b $b (i32.const 9)))
    (call $host (global.get $c)) (call $pair) drop drop
    (drop (i64.const -9223372036854775808)) (drop (f32.const nan)) (drop (f64.const -0.1))
    (drop (i64.load offset=4294967295 align=1 (i32.const 0)))
    (i32.store8 offset=3 (i32.const 0) (i32.const 1))
    (global.set $g (i64.extend32_s (global.get $g)))
    (drop (i32.trunc_sat_f64_u (f64.const 1e300)))
    (memory.copy (i32.const 0) (i32.const 1) (i32.const 2)) (memory.fill $m (i32.const 0) (i32.const 1) (i32.const 2))
    (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d)
    (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1)) (elem.drop $e)
    (table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 0))
    (drop (table.grow $x (ref.null extern) (i32.const 1))) (drop (table.size $x))
    (table.fill $x (i32.const 0) (ref.null extern) (i32.const 1))
    (table.set $t (i32.const 0) (ref.func $leaf)) (drop (ref.is_null (table.get $t (i32.const 0))))
    (drop (select (result externref) (ref.null extern) (ref.null extern) (i32.const 1)))
    (call_indirect $t (type $v) (i32.const 0)) (call_ref $v (ref.func $leaf))
    (drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 (v128.const i64x2 1 2) (v128.const i32x4 1 2 3 4)))
    (drop (i32x4.extract_lane 3 (i32x4.splat (i32.const 1)))) (drop (v128.load32_zero offset=9 (i32.const 0)))
    (drop (v128.load8_lane offset=1 15 (i32.const 0) (v128.const i64x2 0 0)))
    (drop (f64x2.relaxed_madd (local.get 1) (local.get 1) (local.get 1)))
    (drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1))) (atomic.fence)
    (if (local.get 0) (then (return (i32.const 3))) (else (nop)))
    (loop $l (result i32) (br_if $l (i32.eqz (local.tee 0 (i32.add (local.get 0) (i32.const 1))))) (local.get 0)) drop
    (if (i32.eqz (local.get 0)) (then (return_call $all2 (i32.const 1))))
    (block $c (result i32) (try_table (catch $tag $c) (throw $tag (i32.const 1))) (i32.const 2)) drop
    (drop (memory.grow $m (i32.const 1)))
    (memory.grow (local.get 0)))
  (func $all2 (param i32) (result i32) (local.get 0)))`

const example = (name: string): Uint8Array =>
  readFileSync(new URL(`../../../examples/${name}`, import.meta.url))

function mutated(bytes: Uint8Array, random: Random): Uint8Array<ArrayBuffer> {
  const out = Uint8Array.from(bytes)
  for (let left = 1 + random.below(3); left > 0; left--) {
    const at = 8 + random.below(out.length - 8)
    out[at] = random.below(2) === 0 ? (out[at] ?? 0) ^ (1 << random.below(8)) : random.below(256)
  }
  if (random.below(20) > 0) return out
  const cut = 8 + random.below(out.length - 8)
  return Uint8Array.from(Buffer.concat([out.subarray(0, cut), out.subarray(cut + random.below(4))]))
}

/** Metered, or the reason why not; anything but a refusal is a failure. */
function reasonOf(bytes: Uint8Array, canonicalNaNs: boolean, hint: string): string {
  try {
    readCoreModule(bytes)
    const out = meterModule(bytes, { canonicalNaNs })
    assert.ok(WebAssembly.validate(new Uint8Array(out)), hint)
    return 'metered'
  } catch (error) {
    assert.ok(error instanceof AppError, `${hint}: ${String(error)}`)
    const details = error.details as { reason: string }
    return details.reason
  }
}

/** Bytes that V8 refuses are refused or not, but quickly, and by a refusal. */
function tryInvalid(bytes: Uint8Array, hint: string): void {
  try {
    meterModule(bytes, { canonicalNaNs: true })
  } catch (error) {
    if (error instanceof AppError) return
    // It cannot be valid: the assertion at the end says so.
    assert.match(String(error), /a metered module is valid/, hint)
  }
}

test(
  `FN-2 ${CASES} mutated modules: what V8 accepts is metered validly or refused, what it refuses does no harm`,
  { timeout: CASES * 60 },
  async (t) => {
    const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
    t.diagnostic(`seed ${seed}`)
    const random = seededRandom(seed)
    const everything = await parse(EVERYTHING)
    assert.ok(WebAssembly.validate(new Uint8Array(everything)))
    const probe = example('probe/probe.core.wasm')
    const taste = { traps: true, floatBits: true, exceptions: true }
    const reasons: Record<string, number> = { invalid: 0, metered: 0 }
    for (let i = 0; i < CASES; i++) {
      const hint = `seed ${seed}, case ${i}`
      const source =
        i % 16 === 0 ? probe : i % 2 === 0 ? everything : generatedModule(random, taste).bytes
      const bytes = mutated(source, random)
      const valid = WebAssembly.validate(bytes)
      if (!valid) tryInvalid(bytes, hint)
      const reason = valid ? reasonOf(bytes, i % 4 === 3, hint) : 'invalid'
      reasons[reason] = (reasons[reason] ?? 0) + 1
    }
    t.diagnostic(JSON.stringify(reasons))
    assert.ok((reasons['metered'] ?? 0) > CASES / 20)
  },
)

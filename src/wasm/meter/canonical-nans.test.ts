import assert from 'node:assert/strict'
import { test } from 'node:test'
import { call, standingWat } from '#wasm/fixtures/metered.ts'

test('FN-2 canonical NaNs: wherever the bits of arithmetic show they are the same, and what is no arithmetic keeps its own', async () => {
  const op = (name: string, how: string): string =>
    `(func (export "${name}") (param i64 i64) (result i64) ${how.replaceAll('A', '(f64.reinterpret_i64 (local.get 0))').replaceAll('B', '(f64.reinterpret_i64 (local.get 1))')})`
  const bits = (body: string): string => `(i64.reinterpret_f64 ${body})`
  const vector = (body: string): string =>
    `(i64x2.extract_lane 1 ${body.replaceAll('V', '(i64x2.splat (local.get 0))')})`
  const wat = `(module (memory 1) (global $g (mut f64) (f64.const 0))
    ${op('add', bits('(f64.add A B)'))} ${op('sqrt', bits('(f64.sqrt A)'))} ${op('min', bits('(f64.min A B)'))}
    ${op('twice', bits('(f64.mul (f64.add A B) (f64.sub A B))'))}
    ${op('narrow', '(i64.extend_i32_u (i32.reinterpret_f32 (f32.add (f32.demote_f64 A) (f32.const 1))))')}
    ${op('stored', '(f64.store (i32.const 8) (f64.add A B)) (i64.load (i32.const 8))')}
    ${op('global', '(global.set $g (f64.div A B)) (i64.reinterpret_f64 (global.get $g))')}
    ${op('block', bits('(block (result f64) (br_if 0 (f64.add A B) (i32.const 1)))'))}
    ${op('sign', bits('(f64.copysign (f64.const 1) (f64.add A B))'))}
    ${op('lanes', vector('(f64x2.add V V)'))} ${op('halves', vector('(f32x4.mul V V)'))}
    ${op('mixed', vector('(f64x2.add (f32x4.mul V V) V)'))}
    ${op('neg', bits('(f64.neg A)'))} ${op('select', bits('(select A B (i32.const 1))'))} ${op('pmin', vector('(f64x2.pmin V V)'))})`
  const NAN = 0x7ff8_0000_0000_0000n
  const quiet = 0x7ff8_0000_0000_0111n
  const { exports } = await standingWat(wat, { canonicalNaNs: true })
  const of = (name: string, a = quiet, b = 0xfff8_0000_0000_0222n): bigint =>
    BigInt.asUintN(64, BigInt(String(call(exports, name, a, b))))
  for (const name of ['add', 'sqrt', 'min', 'twice', 'stored', 'global', 'block', 'lanes', 'mixed'])
    assert.equal(of(name), NAN, name)
  assert.equal(of('narrow'), 0x7fc0_0000n)
  // Its low half is no NaN, the high one is.
  assert.equal(of('halves') >> 32n, 0x7fc0_0000n)
  assert.equal(of('sign'), 0x3ff0_0000_0000_0000n)
  assert.equal(of('neg'), quiet | (1n << 63n))
  for (const name of ['select', 'pmin']) assert.equal(of(name), quiet, name)
  assert.equal(of('add', 0x3ff0_0000_0000_0000n, 0x3ff0_0000_0000_0000n), 0x4000_0000_0000_0000n)
})

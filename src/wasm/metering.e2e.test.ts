// FN-3: the bounds of an invocation through a real runner: fuel, call depth, memory, each with its one true reason.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { component, preview1, prepared, run, runWat, withRunner } from '#wasm/fixtures/run-wat.ts'
import { prepare } from '#wasm/prepare.ts'
import type { RunOutcome } from '#wasm/outcome.ts'

const messageOf = (outcome: RunOutcome): string => ('message' in outcome ? outcome.message : '')

const SPIN = preview1(
  [],
  '(call $spin)',
  '(memory (export "memory") 1) (func $spin (loop $l (br $l)))',
)

test('FN-3 a guest that burns its fuel ends for fuel, by name, and the next invocation is normal', async () => {
  for (const wat of [SPIN, component('(loop $l (br $l)) unreachable')])
    await withRunner(await prepared(wat), async (runner) => {
      for (let turn = 0; turn < 3; turn++) {
        const { outcome } = await run(runner, { fuelMax: 5_000_000 })
        assert.equal(outcome.kind, 'fuel')
        assert.match(messageOf(outcome), /^all of its fuel was burnt \(at .*(spin|main)/)
        assert.equal(outcome.fuelUsed, 5_000_000)
      }
    })
})

test('FN-3 fuel that is just enough is enough, one unit less is not', async () => {
  const wat = preview1(
    [],
    `(local $i i32)
     (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000))))
     (call $print (i32.const 64) (i32.const 3))`,
  )
  await withRunner(await prepared(wat), async (runner) => {
    const free = (await run(runner)).outcome
    const fuelUsed = free.fuelUsed ?? 0
    assert.equal(free.kind, 'exited')
    assert.ok(fuelUsed > 700_000 && fuelUsed < 700_100)
    const enough = (await run(runner, { fuelMax: fuelUsed })).outcome
    assert.deepEqual([enough.kind, enough.fuelUsed], ['exited', fuelUsed])
    const less = (await run(runner, { fuelMax: fuelUsed - 1 })).outcome
    assert.deepEqual([less.kind, less.fuelUsed], ['fuel', fuelUsed - 1])
  })
})

test('FN-3 endless recursion is a trap at the same depth, cold and warm', async () => {
  const wat = preview1(
    [],
    '(call $down)',
    '(memory (export "memory") 1) (func $down (call $down) (call $down))',
  )
  const ends: unknown[] = []
  for (let child = 0; child < 2; child++)
    await withRunner(await prepared(wat), async (runner) => {
      for (let turn = 0; turn < 3; turn++) {
        const { outcome } = await run(runner)
        assert.equal(outcome.kind, 'trap')
        assert.match(messageOf(outcome), /^call stack exhausted \(at .*down < .*down/)
        ends.push(outcome.fuelUsed)
      }
    })
  assert.equal(new Set(ends).size, 1)
  assert.ok(Number(ends[0]) > 10_000)
})

test('FN-3 an example burns the same each time, in one child and in another', async () => {
  const bytes = readFileSync(new URL('../../examples/word-count/word-count.wasm', import.meta.url))
  const outcome = await prepare(bytes, { memMb: 64 })
  assert.ok(outcome.ok)
  const stdin = Buffer.from('one two three\n'.repeat(2000))
  const burnt = new Set<unknown>()
  for (let child = 0; child < 2; child++)
    await withRunner(outcome.artifact, async (runner) => {
      for (let turn = 0; turn < 5; turn++) {
        const { outcome: end, stdout } = await run(runner, { stdin })
        assert.equal(end.kind, 'exited')
        assert.match(stdout.toString(), /2000\s+6000\s+28000/)
        burnt.add(end.fuelUsed)
      }
    })
  assert.equal(burnt.size, 1, [...burnt].join())
  assert.ok(Number([...burnt][0]) > 28_000)
})

test('FN-3 tables and memories past the budget are refused; what then traps ended for memory', async () => {
  const grows = `(drop (table.grow $t (ref.null extern) (i32.const 900000)))
    (if (i32.eq (table.grow $t (ref.null extern) (i32.const 900000)) (i32.const -1)) (then unreachable))`
  const { outcome } = await runWat(
    preview1([], grows, '(memory (export "memory") 1) (table $t 1 externref)'),
    {},
    16,
  )
  assert.equal(outcome.kind, 'memory')
  assert.ok(Number(outcome.memPeakMb) > 13 && Number(outcome.memPeakMb) < 14)
})

test('FN-2 a module that names the meter as its own import is refused', async () => {
  const wat = component(
    'i32.const 0',
    `(core module $x (import "$clutch.meter" "fuel" (global $f (mut i64))))
     (core module $y (global (export "fuel") (mut i64) (i64.const 1)))
     (core instance $yi (instantiate $y))
     (core instance (instantiate $x (with "$clutch.meter" (instance $yi))))`,
  )
  await assert.rejects(prepared(wat), /UNSAFE_NAME/)
})

// What runs past the end of fuel, and what is counted, beside a count too simple to be wrong that the module itself takes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { counted } from '#wasm/fixtures/counted.ts'
import { call, meterFor, outcomeOf, standing, standingWat } from '#wasm/fixtures/metered.ts'
import { spender } from '#wasm/fixtures/spender.ts'
import type { MeterEnd } from '#wasm/guest/meter.ts'
import { GAP_UNITS_MAX, PAST_FUEL_UNITS_MAX, TAIL_UNITS_MAX } from '#wasm/meter/budget.ts'

const CASES = process.env['CLUTCH_SOAK'] === undefined ? 60 : 5_000
const FUEL = [0, 1, 1000, 30_000, 1_000_000, 12_000_000]
/** So deep that tails of frames tell, within the stack that a test has; so shallow that calls of calls end. */
const DEEP = [0, 1, 3, 6, 3_000]

type Spent = {
  /** Units executed, by the module's own count. */
  done: number
  used: number
  threw: boolean
  passed: MeterEnd
  /** What it gave or how it ended. */
  outcome: unknown
}

/** A module that would never look is ended by its own brake, and has then done too much. */
function spend(bytes: Uint8Array, fuelMax: number, deep: number): Spent {
  const meter = meterFor({ fuelMax, memMb: 16 })
  let own: Record<string, unknown> = {}
  const host = (): void => {
    if (own['back'] !== undefined) call(own, 'back', 0)
  }
  const refuse = (): never => {
    throw new Error('refused')
  }
  const brake = fuelMax + PAST_FUEL_UNITS_MAX
  const module = counted(bytes, { itself: true, brake })
  let outcome: unknown
  try {
    own = standing(module, { meter, imports: { a: { host, refuse } } }).exports
    outcome = outcomeOf(own, 'f', deep)
  } catch (error) {
    outcome = `start: ${String(error)}`
  }
  const read = (name: string): number =>
    Number((own[name] as WebAssembly.Global | undefined)?.value ?? 0)
  return {
    done: read('n') + read('bulk'),
    used: meter.fuelUsed(),
    threw: read('thrown') > 0,
    passed: meter.passed(),
    outcome,
  }
}

/** Whatever a program does. */
function holds(spent: Spent, fuelMax: number, hint: string): void {
  const { done, used, threw, passed, outcome } = spent
  assert.ok(done <= fuelMax + PAST_FUEL_UNITS_MAX, `${hint}: ${done} done`)
  const text = String(outcome)
  if (/unreachable/.test(text))
    assert.ok(passed === 'fuel' || passed === 'depth', `${hint}: braked`)
  else assert.doesNotMatch(text, /trap|RangeError/, hint)
  if (passed !== undefined || text.startsWith('start')) return
  if (threw) assert.ok(used >= done, `${hint}: ${done} done, ${used} counted`)
  else assert.equal(used, done, hint)
}

const TICK = '(global.set $g (i32.add (global.get $g) (i32.const 1)))'
const FOREVER = '(loop $l (call $f) (br $l))'
const many = (body: string): string =>
  `(loop $l ${body} (br_if $l (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 1000))))`
/** What stands after a branch is charged there: not before the call. */
const recursion = (before: string, after: string): string =>
  `(func $f (export "f") (param i32) ${before}
    (if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1)))))
    (block (br_if 0 (i32.const 0)) ${after}))`
const entry = (body: string): string => `(func (export "f") (param i32) ${body})`

/** Each runs on for ever, or for far longer than its fuel. */
const SPENDERS: Record<string, string> = {
  'a leaf behind its caller': `${entry(FOREVER)} (func $f ${TICK})`,
  'a leaf behind, called past one before': `(func $b ${TICK})
    ${entry('(loop $l (call $b) (call $f) (call $b) (call $f) (br $l))')} (func $f ${TICK})`,
  'loops of functions with loops': `(func $a (param i32) ${many(TICK)})
    (func $b (param i32) ${many('(call $a (i32.const 0))')}) (func $c (param i32) ${many('(call $b (i32.const 0))')})
    ${entry(many('(call $c (i32.const 0))'))}`,
  'large leaves in straight code': `(func $f ${TICK.repeat(20)}) ${entry('(call $f)'.repeat(10_000))}`,
  'leaves in leaves, in a loop': `(func $a ${TICK.repeat(10)}) (func $b ${'(call $a)'.repeat(4)})
    (func $f ${'(call $b)'.repeat(4)}) ${entry(FOREVER)}`,
  'large leaves in a loop': `(func $f ${TICK.repeat(45)}) ${entry(`(loop ${'(call $f)'.repeat(50)} (br 0))`)}`,
  'straight code': entry(TICK.repeat(30_000)),
  'straight code in a branch that is never left in its middle': entry(
    `(block (br_if 0 (i32.eqz (local.get 0))) ${TICK.repeat(15_000)}) ${TICK.repeat(15_000)}`,
  ),
  'tails of a recursion': recursion('', TICK.repeat(15)),
  'long tails of a recursion': recursion('', TICK.repeat(10_000)),
  'leaves in the tails of a recursion': `(func $leaf ${TICK.repeat(20)}) ${recursion('', '(call $leaf)'.repeat(200))}`,
  'loops in the tails of a recursion': recursion('', `(local.set 0 (i32.const 0)) ${many(TICK)}`),
  'a small thrower in an owing frame': `(func $thrower (throw $e))
    (func $f (param i32) (if (local.get 0) (then ${TICK})) ${TICK.repeat(500)} (call $thrower))
    ${entry('(loop $l (block (try_table (catch_all 0) (call $f (i32.const 1)))) (br $l))')}`,
  'a thrower behind, thrown on by what stands between': `(func $on (call $f) ${TICK})
    ${entry('(loop $l (try_table (catch_all $l) (call $on)))')}
    (func $f ${TICK.repeat(100)} (block (try_table (catch_all 0) (call $thrower))) (throw $e)) (func $thrower (throw $e))`,
  'a loop that is left by exceptions only': entry(
    `(loop $l (try_table (catch_all $l) ${TICK.repeat(30)} (throw $e)))`,
  ),
  'a leaf called by its table': `(elem (i32.const 0) $f) (func $f ${TICK})
    ${entry('(loop $l (call_indirect (i32.const 0)) (call_indirect (i32.const 0)) (br $l))')}`,
  'a leaf called at the end': `(func $leaf ${TICK.repeat(20)}) (func $f (return_call $leaf)) ${entry(FOREVER)}`,
  'functions that end in each other': `(func $g (return_call $f)) (func $f (return_call $g)) ${entry(FOREVER)}`,
  'a br_table back': `(func $f ${TICK}) ${entry('(loop $l (call $f) (block $b (br_table $l $l $b (i32.const 0))))')}`,
  'the host and what it calls': `(export "back" (func $f)) (func $f (param i32) ${TICK.repeat(20)})
    ${entry('(loop $l (call $host) (br $l))')}`,
  'many loops in loops': entry(
    `(loop ${'(block (loop '.repeat(40)} ${TICK} ${'(br_if 0 (i32.const 1))))'.repeat(40)} (br 0))`,
  ),
}

const around = (
  functions: string,
): string => `(module (import "a" "host" (func $host)) (import "a" "refuse" (func))
  (table 1 funcref) (tag $e) (global $g (mut i32) (i32.const 0)) ${functions})`

/** Some end while the deepest recursion comes back. */
const AT_THE_BOTTOM = Array.from({ length: 30 }, (_, i) => 40_000 + i * 4_000)

test('FN-3 fuel: what spends ends soon after its fuel, whatever calls what', async () => {
  for (const [name, functions] of Object.entries(SPENDERS)) {
    const bytes = await parse(around(functions))
    const recursive = /recursion/.test(name)
    for (const fuelMax of recursive ? AT_THE_BOTTOM : [0, 1000, 100_000]) {
      const hint = `${name}, fuel ${fuelMax}`
      const spent = spend(bytes, fuelMax, 2_000)
      holds(spent, fuelMax, hint)
      const past = 3 * GAP_UNITS_MAX + (recursive ? 2_000 * TAIL_UNITS_MAX : 0)
      assert.ok(spent.done <= fuelMax + past, `${hint}: ${spent.done} done`)
      assert.equal(spent.passed, 'fuel', hint)
    }
  }
})

test('FN-3 fuel: small loops in small functions that call each other do not multiply', async () => {
  const twice = (body: string): string =>
    `(param i32) (loop $l ${body} (br_if $l (local.tee 0 (i32.eqz (local.get 0)))))`
  const deep = 26
  const functions = Array.from(
    { length: deep },
    (_, i) => `(func $f${i} ${twice(i === 0 ? TICK : `(call $f${i - 1} (i32.const 0))`)})`,
  )
  const { exports, meter } = await standingWat(
    `(module (global $g (export "g") (mut i32) (i32.const 0)) ${functions.join(' ')}
      (func (export "f") (call $f${deep - 1} (i32.const 0))))`,
    { fuelMax: 1000 },
  )
  assert.match(String(outcomeOf(exports, 'f')), /^trap: unreachable/)
  assert.equal(meter.passed(), 'fuel')
  assert.ok((exports['g'] as WebAssembly.Global).value <= 3 * GAP_UNITS_MAX)
})

test('FN-3 fuel: a guest cannot catch the end of its fuel, nor of its depth, nor go on past its host', async () => {
  // A frame that calls its host takes more of the depth than of a stack as small as the test's.
  const spins = ['(loop $l (br $l))', '(call $f (i32.const 0)) (call $host)']
  for (const spin of spins)
    for (const [way, caught] of Object.entries({
      newer: '(block (try_table (catch_all 0) (call $f (i32.const 0))))',
      older: 'try i32.const 0 call $f catch_all end',
      host: 'try call $host catch_all end',
    })) {
      const wat = around(
        `(func $f (export "back") (param i32) ${spin}) ${entry(`${caught} (global.set $after (i32.const 1))`)}
        (global $after (export "thrown") (mut i32) (i32.const 0))`,
      )
      const spent = spend(await parse(wat), 10_000_000, 0)
      const hint = `${way}: ${spin}`
      assert.match(String(spent.outcome), /^trap: unreachable/, hint)
      assert.ok(spent.passed !== undefined && !spent.threw, hint)
    }
})

test(`FN-3 fuel: ${CASES} programs that spend in every way spend what is counted, and end where it ends`, async (t) => {
  const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
  t.diagnostic(`seed ${seed}`)
  const seen = new Map<string, number>()
  let farthest = 0
  for (let i = 0; i < CASES; i++) {
    const random = seededRandom(`${seed} ${i}`)
    const bytes = await parse(spender(random))
    for (const fuelMax of FUEL) {
      const deep = DEEP[random.below(DEEP.length)] ?? 0
      const hint = `seed ${seed}, case ${i}, fuel ${fuelMax}, deep ${deep}`
      const spent = spend(bytes, fuelMax, deep)
      holds(spent, fuelMax, hint)
      farthest = Math.max(farthest, spent.done - fuelMax)
      const kind = spent.passed ?? (spent.outcome === undefined ? 'ended' : 'thrown')
      seen.set(kind, (seen.get(kind) ?? 0) + 1)
      if (kind !== 'ended' || spent.used === 0) continue
      assert.equal(spend(bytes, spent.used, deep).passed, undefined, hint)
      assert.equal(spend(bytes, spent.used - 1, deep).passed, 'fuel', hint)
    }
  }
  t.diagnostic(`${JSON.stringify(Object.fromEntries(seen))}, at most ${farthest} past the end`)
  for (const kind of ['ended', 'fuel', 'thrown'])
    assert.ok((seen.get(kind) ?? 0) > CASES / 10, kind)
})

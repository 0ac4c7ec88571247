// FN-2: mutated binaries are refused with a clear error or become an artifact that loads and runs to an outcome.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { mutated, REFUSALS } from '#wasm/fixtures/mutate.ts'
import { component, preview1, run, withRunner } from '#wasm/fixtures/run-wat.ts'
import { prepare } from '#wasm/prepare.ts'

const SOAK = process.env['CLUTCH_SOAK'] !== undefined
const CASES = SOAK ? 1000 : 200
/** Accepted ones that are also run; starting a child each is the cost. */
const RUN_MAX = SOAK ? 1000 : 25

const EXIT = component(
  'i32.const 3 call $x i32.const 0',
  `(import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
   (core func $ex (canon lower (func $exit "exit-with-code")))`,
  '(with "e" (instance (export "x" (func $ex))))',
  '(import "e" "x" (func $x (param i32))) (memory 1)',
)

test(
  `FN-2 ${CASES} mutated binaries: a clear refusal or a valid artifact, and this process untouched`,
  { timeout: CASES * 1500 },
  async (t) => {
    const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
    t.diagnostic(`seed ${seed}`)
    const random = seededRandom(seed)
    const example = readFileSync(new URL('../../examples/probe/probe.wasm', import.meta.url))
    const sources = [
      await parse(EXIT),
      await parse(preview1(['proc_exit', 'args_get'], 'nop')),
      example,
    ]
    const cases = Array.from({ length: CASES }, (_, i) => {
      // The large one is slow to prepare: one in eight.
      const source = sources[i % 8 === 0 ? 2 : i % 3 === 0 ? 1 : 0]
      return mutated(source!, random)
    })
    const reasons = new Map<string, number>()
    let ran = 0
    const one = async (bytes: Uint8Array, i: number): Promise<void> => {
      const hint = `seed ${seed}, case ${i}`
      const outcome = await prepare(bytes, { memMb: 64 })
      const reason = outcome.ok ? 'accepted' : outcome.reason
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1)
      if (!outcome.ok) {
        assert.match(outcome.reason, REFUSALS, `${hint}: ${outcome.message}`)
        assert.ok(outcome.message.length > 10 && outcome.message.length < 2000, hint)
        return
      }
      if (ran++ >= RUN_MAX) return
      const { outcome: end } = await withRunner(outcome.artifact, (runner) =>
        run(runner, { timeoutMs: 1000 }),
      )
      assert.notEqual(end.kind, 'fault', `${hint}: ${JSON.stringify(end)}`)
    }
    const queue = cases.entries()
    const worker = async (): Promise<void> => {
      for (const [i, bytes] of queue) await one(bytes, i)
    }
    await Promise.all([worker(), worker()])
    t.diagnostic(JSON.stringify(Object.fromEntries(reasons)))
    assert.equal(
      [...reasons.values()].reduce((sum, n) => sum + n, 0),
      CASES,
    )
  },
)

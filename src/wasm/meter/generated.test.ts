// Modules made by chance: metered, they give what they gave, and burn what a rewriter too simple to be wrong counts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { counted } from '#wasm/fixtures/counted.ts'
import { generatedModule, type Taste } from '#wasm/fixtures/generated-module.ts'
import { outcomeOf, standing } from '#wasm/fixtures/metered.ts'

const CASES = process.env['CLUTCH_SOAK'] === undefined ? 200 : 20_000
/** Some loop long: those are not compared. */
const FUEL_MAX = 500_000

const ARGUMENTS = [3, -7, 0x7fffffff, 0]

type Exports = Record<string, unknown>

const plain = (bytes: Uint8Array): Exports =>
  new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes))).exports

/** NaNs are one: their bits are not looked at here. */
const shown = (value: unknown): unknown =>
  typeof value === 'bigint' ? `${value}n` : Array.isArray(value) ? value.map(shown) : value

/** What each function gives in turn, and what it leaves behind. */
function run(exports: Exports, params: string[][]): unknown[] {
  const results = params.map((types, i) => {
    const args = types.map((type, n) => {
      const number = ARGUMENTS[(i + n) % ARGUMENTS.length]
      return type === 'I' ? BigInt(number ?? 0) : number
    })
    return shown(outcomeOf(exports, `f${i}`, ...args))
  })
  const memory = exports['m'] as WebAssembly.Memory
  const globals = ['g0', 'g1'].map((name) => shown((exports[name] as WebAssembly.Global).value))
  return [...results, ...globals, Buffer.from(memory.buffer, 0, 256).toString('hex')]
}

const TASTES: Record<string, Taste> = {
  calm: { traps: false, floatBits: false, exceptions: false },
  trapping: { traps: true, floatBits: false, exceptions: false },
  throwing: { traps: true, floatBits: false, exceptions: true },
}

for (const [name, taste] of Object.entries(TASTES))
  test(`FN-2 FN-3 ${CASES} generated modules (${name}) give metered what they gave`, (t) => {
    const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
    t.diagnostic(`seed ${seed}`)
    const random = seededRandom(seed)
    let compared = 0
    for (let i = 0; i < CASES; i++) {
      const { bytes, params } = generatedModule(random, taste)
      const hint = `seed ${seed}, case ${i}`
      assert.ok(WebAssembly.validate(new Uint8Array(bytes)), `${hint} is valid`)
      const { exports, meter } = standing(bytes, { fuelMax: FUEL_MAX, memMb: 4096 })
      const metered = run(exports, params)
      if (meter.passed() === 'fuel') continue
      compared++
      assert.deepEqual(metered, run(plain(bytes), params), hint)
      const sealed = standing(bytes, { fuelMax: FUEL_MAX, memMb: 4096, canonicalNaNs: true })
      assert.deepEqual(run(sealed.exports, params), metered, hint)
      assert.equal(sealed.meter.fuelUsed(), meter.fuelUsed(), hint)
      if (taste.traps) continue
      const simple = plain(counted(bytes, { itself: false, brake: undefined }))
      run(simple, params)
      const grown = (simple['m'] as WebAssembly.Memory).buffer.byteLength / 65_536 - 1
      assert.equal(
        meter.fuelUsed() - grown * 1024,
        Number((simple['n'] as WebAssembly.Global).value),
        hint,
      )
    }
    t.diagnostic(`${compared} compared`)
    assert.ok(compared > CASES / 2, `${compared} compared`)
  })

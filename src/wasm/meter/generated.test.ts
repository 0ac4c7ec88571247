// Modules made by chance: metered, they give what they gave, and burn what a rewriter too simple to be wrong counts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { cursorOver, skip, u32 } from '#wasm/binary/cursor.ts'
import { putTogether, SECTION, takeApart } from '#wasm/binary/sections.ts'
import { generatedModule, leb, type Taste } from '#wasm/fixtures/generated-module.ts'
import { outcomeOf, standing } from '#wasm/fixtures/metered.ts'
import { FUEL, readOpcode, skipImmediates } from '#wasm/meter/instruction-set.ts'
import { skipValueType } from '#wasm/binary/core-module.ts'

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

/** The module with a global that goes up by an instruction's weight before each one. */
function counted(bytes: Uint8Array): Uint8Array {
  const sections = takeApart(bytes)
  const code = cursorOver(sections.bodies.get(SECTION.code)![0]!)
  const bodies: number[] = []
  const total = u32(code)
  for (let n = 0; n < total; n++) {
    const end = u32(code) + code.at
    const start = code.at
    for (let groups = u32(code); groups > 0; groups--) {
      u32(code)
      skipValueType(code)
    }
    const body = [...code.bytes.subarray(start, code.at)]
    while (code.at < end) {
      const at = code.at
      const instruction = readOpcode(code)
      skipImmediates(code, instruction)
      // global.get 2; i64.const weight; i64.add; global.set 2
      if (FUEL[instruction] === 1) body.push(0x23, 2, 0x42, 1, 0x7c, 0x24, 2)
      body.push(...code.bytes.subarray(at, code.at))
    }
    bodies.push(...leb(body.length), ...body)
  }
  sections.bodies.set(SECTION.code, [Uint8Array.from([...leb(total), ...bodies])])
  const globals = sections.bodies.get(SECTION.global)![0]!
  sections.bodies.set(SECTION.global, [
    Uint8Array.from([3, ...globals.subarray(1), 0x7e, 1, 0x42, 0, 0x0b]),
  ])
  const exported = cursorOver(sections.bodies.get(SECTION.export)![0]!)
  const names = u32(exported)
  const rest = exported.bytes.subarray(exported.at)
  skip(exported, rest.length)
  sections.bodies.set(SECTION.export, [Uint8Array.from([names + 1, ...rest, 1, 0x6e, 3, 2])])
  return putTogether(sections)
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
      const simple = plain(counted(bytes))
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

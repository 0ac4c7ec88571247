// A second engine beside V8, where one is at hand: Python with the module wasmtime. Metered modules made by chance give
// and burn there what they do here; the kernels say what that engine's own fuel costs it. Nothing where there is none.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { seededRandom } from '#lib/random.ts'
import { generatedModule } from '#wasm/fixtures/generated-module.ts'
import { createMeter } from '#wasm/guest/meter.ts'
import { meterModule } from '#wasm/meter/meter.ts'
import { sizeAtStart } from '#wasm/binary/size-at-start.ts'
import { round, type Row } from '#sim/bench/row.ts'

const PROGRAM = join(import.meta.dirname, 'kernels/second-engine.py')
const MODULES = 200
const TURNS = 7
/** The program's own numbers. */
const FUEL_MAX = 500_000
const MEMORY_BYTES = 2 ** 32
const ANSWER_BYTES_MAX = 64 * 1024 * 1024

/** `results`: null where it trapped. */
type Ran = { results: (unknown[] | null)[]; memory: string; fuelUsed: number }
type Answer = { plain: Record<string, number>; fuel: Record<string, number>; runs: Ran[] }
type Call = [name: string, args: number[]]
type Program = { metered: Uint8Array; calls: Call[]; isLong: boolean[][] }

function programs(): Program[] {
  const random = seededRandom('second engine')
  return Array.from({ length: MODULES }, () => {
    const { bytes, params } = generatedModule(random, {
      traps: true,
      floatBits: true,
      exceptions: false,
    })
    return {
      metered: meterModule(bytes, { canonicalNaNs: true }),
      calls: params.map((types, i): Call => [`f${i}`, types.map(() => 3)]),
      isLong: params.map((types) => types.map((type) => type === 'I')),
    }
  })
}

function runHere({ metered, calls, isLong }: Program): Ran {
  const meter = createMeter({ memoryBytesMax: MEMORY_BYTES, fuelMax: FUEL_MAX })
  const module = new WebAssembly.Module(new Uint8Array(metered))
  const { exports } = meter.instantiate({ module, ...sizeAtStart(metered) }, {})
  const results = calls.map(([name, args], i) => {
    const run = exports[name]
    if (typeof run !== 'function') throw new Error(`a generated module exports no ${name}`)
    try {
      const answer: unknown = run(
        ...args.map((arg, n) => (isLong[i]?.[n] === true ? BigInt(arg) : arg)),
      )
      return answer === undefined ? [] : Array.isArray(answer) ? answer : [answer]
    } catch {
      return null
    }
  })
  const memory = exports['m']
  if (!(memory instanceof WebAssembly.Memory)) throw new Error('a generated module has no memory')
  const shown = Buffer.from(memory.buffer, 0, 256).toString('hex')
  return { results, memory: shown, fuelUsed: meter.fuelUsed() }
}

/** Whether the other engine's text of a value says the same: an integer in decimals or a float's bits. */
function isSame(here: unknown, there: unknown): boolean {
  if (Number.isNaN(here)) return there === 'nan'
  const bits = Buffer.alloc(8)
  bits.writeDoubleLE(Number(here))
  return there === String(here) || there === bits.toString('hex')
}

const isSameRun = (here: Ran, there: Ran | undefined): boolean =>
  there !== undefined &&
  here.memory === there.memory &&
  here.fuelUsed === Math.min(FUEL_MAX, there.fuelUsed) &&
  here.results.every((results, i) => {
    const theirs = there.results[i] ?? null
    if (results === null || theirs === null) return results === theirs
    return results.length === theirs.length && results.every((one, n) => isSame(one, theirs[n]))
  })

/** `amounts`: how much of each kernel. No row where Python has no wasmtime. */
export function benchSecondEngine(kernels: Uint8Array, amounts: Record<string, number>): Row[] {
  if (spawnSync('python3', ['-c', 'import wasmtime']).status !== 0) return []
  const made = programs()
  const asked = {
    time: { wasm: Buffer.from(kernels).toString('base64'), amounts, turns: TURNS },
    runs: made.map(({ metered, calls }) => ({
      wasm: Buffer.from(metered).toString('base64'),
      calls,
    })),
  }
  const input = JSON.stringify(asked)
  const { stdout, stderr, status } = spawnSync('python3', [PROGRAM], {
    input,
    maxBuffer: ANSWER_BYTES_MAX,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`the second engine failed: ${stderr}`)
  const answer = JSON.parse(stdout) as Answer
  const same = made.filter((program, i) => isSameRun(runHere(program), answer.runs[i])).length
  if (same !== MODULES)
    throw new Error(`${MODULES - same} of ${MODULES} modules differ in wasmtime`)
  return [
    { name: 'meter_same_in_wasmtime', value: same, unit: `of ${MODULES}` },
    ...Object.entries(answer.plain).map(([name, plain]) => ({
      name: `wasmtime_fuel_vs_plain_${name}`,
      value: round((answer.fuel[name] ?? NaN) / plain),
      unit: '×',
    })),
  ]
}

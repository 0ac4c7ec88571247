// What metering costs: kernels as they are and metered, in turns in one process, and how long metering a large module
// takes.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '#lib/clock.ts'
import { createMeter } from '#wasm/guest/meter.ts'
import { meterModule } from '#wasm/meter/meter.ts'
import { benchSecondEngine } from '#sim/bench/second-engine.ts'
import { percentile, round, type Row } from '#sim/bench/row.ts'

const KERNELS = join(import.meta.dirname, 'kernels/kernels.wasm')

/** How much of each kernel takes some 20 ms: long beside a switch of tasks, short beside the whole. */
const AMOUNTS = { sha256: 40, matmul: 1, nbody: 250_000, sieve: 3, fib: 32 } as const

type Kernel = keyof typeof AMOUNTS
const NAMES: readonly Kernel[] = ['sha256', 'matmul', 'nbody', 'sieve', 'fib']

const FORMS = ['v8', 'metered', 'sealed'] as const
type Form = (typeof FORMS)[number]

/** Turns that only warm the compiler up, and turns that count. */
const WARM_UP = 6
const TURNS = 21

const LARGE_BYTES = 12 * 1024 * 1024
const LARGE_TURNS = 3

type Run = (amount: number) => number
type Instances = Record<Form, Record<Kernel, Run>>

function instanceOf(bytes: Uint8Array): Record<Kernel, Run> {
  const meter = createMeter({ memoryBytesMax: 2 ** 32, fuelMax: null })
  const module = new WebAssembly.Module(new Uint8Array(bytes))
  const { exports } = meter.instantiate({ module, bytesAtStart: 0, memoriesAtStart: 0 }, {})
  const run =
    (name: Kernel): Run =>
    (amount) => {
      const kernel = exports[name]
      if (typeof kernel !== 'function') throw new Error(`the kernels export no ${name}`)
      return Number(kernel(amount))
    }
  return {
    sha256: run('sha256'),
    matmul: run('matmul'),
    nbody: run('nbody'),
    sieve: run('sieve'),
    fib: run('fib'),
  }
}

function timed(work: () => number): { ms: number; result: number } {
  const began = systemClock.monotonic()
  const result = work()
  return { ms: systemClock.monotonic() - began, result }
}

/** One kernel in every form, in turns: what else the machine does hits all of them. */
function compare(instances: Instances, name: Kernel): Record<Form, number> {
  const samples: Record<Form, number[]> = { v8: [], metered: [], sealed: [] }
  for (let turn = 0; turn < WARM_UP + TURNS; turn++) {
    const results = FORMS.map((form) => {
      const { ms, result } = timed(() => instances[form][name](AMOUNTS[name]))
      if (turn >= WARM_UP) samples[form].push(ms)
      return result
    })
    if (new Set(results).size !== 1)
      throw new Error(`${name} gives ${results.join(', ')}: metering changed it`)
  }
  return {
    v8: percentile(samples.v8, 0.5),
    metered: percentile(samples.metered, 0.5),
    sealed: percentile(samples.sealed, 0.5),
  }
}

/** An unsigned LEB128. */
function leb(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...leb(value >>> 7)]
}

/** Section 10 with its bodies so often that the module is LARGE_BYTES long, and section 3 with their types. */
function largeModule(kernels: Uint8Array): Uint8Array {
  const sections = new Map<number, Uint8Array>()
  const read = { at: 8 }
  const number = (): number => {
    let value = 0
    for (let shift = 0; ; shift += 7) {
      const byte = kernels[read.at++] ?? 0
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }
  while (read.at < kernels.length) {
    const id = kernels[read.at++] ?? 0
    const length = number()
    sections.set(id, kernels.subarray(read.at, read.at + length))
    read.at += length
  }
  // Fewer than 128 functions: the count is one byte.
  const types = sections.get(3) ?? new Uint8Array(1)
  const bodies = sections.get(10) ?? new Uint8Array(1)
  const times = Math.floor(LARGE_BYTES / bodies.length)
  const repeated = (vector: Uint8Array): Buffer =>
    Buffer.concat([
      Buffer.from(leb((vector[0] ?? 0) * times)),
      ...Array.from({ length: times }, () => vector.subarray(1)),
    ])
  sections.set(3, repeated(types))
  sections.set(10, repeated(bodies))
  const parts = [...sections].flatMap(([id, body]) =>
    id === 0 ? [] : [Buffer.from([id, ...leb(body.length)]), body],
  )
  return Buffer.concat([kernels.subarray(0, 8), ...parts])
}

function meteringTime(kernels: Uint8Array): Row {
  const large = largeModule(kernels)
  const samples = Array.from(
    { length: LARGE_TURNS },
    () => timed(() => meterModule(large, { canonicalNaNs: false }).length).ms,
  )
  return { name: 'meter_12mb_ms', value: round(percentile(samples, 0.5)), unit: 'ms' }
}

export async function benchMetering(): Promise<Row[]> {
  const kernels = readFileSync(KERNELS)
  const instances: Instances = {
    v8: instanceOf(kernels),
    metered: instanceOf(meterModule(kernels, { canonicalNaNs: false })),
    sealed: instanceOf(meterModule(kernels, { canonicalNaNs: true })),
  }
  const rows: Row[] = []
  const ratios: Record<'metered' | 'sealed', number[]> = { metered: [], sealed: [] }
  for (const name of NAMES) {
    const { v8, metered, sealed } = compare(instances, name)
    const [ratio, sealedRatio] = [round(metered / v8), round(sealed / v8)]
    ratios.metered.push(ratio)
    ratios.sealed.push(sealedRatio)
    const peer = `plain V8 (${round(v8)} ms)`
    rows.push({ name: `meter_vs_v8_${name}`, value: ratio, unit: '×', peer, ratio })
    rows.push({ name: `meter_sealed_vs_v8_${name}`, value: sealedRatio, unit: '×' })
  }
  return [
    ...rows,
    { name: 'meter_vs_v8_median', value: percentile(ratios.metered, 0.5), unit: '×' },
    { name: 'meter_sealed_vs_v8_median', value: percentile(ratios.sealed, 0.5), unit: '×' },
    meteringTime(kernels),
    ...benchSecondEngine(kernels, AMOUNTS),
  ]
}

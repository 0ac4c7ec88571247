// The bounds of one invocation: its fuel, the depth of its calls, the memory of all its memories and tables.
// 1. All core modules of the invocation share them through imported globals; metered code counts by itself.
// 2. What an instance brings when it starts is taken from the budget before it is made; growth, in a start function too,
//    is taken by the code that grows.
import { DEPTH_UNITS, GROWTH, METER_MODULE, type METER_GLOBALS } from '#wasm/meter/budget.ts'
import { MEMORIES_MAX, PAGE_BYTES, PAGES_PER_MIB } from '#wasm/binary/core-module.ts'

/** A core module and what its memories and tables take before anything runs. */
export type Sized = {
  module: WebAssembly.Module
  bytesAtStart: number
  memoriesAtStart: number
}

/** Why metered code ended a guest: the first that holds. */
export type MeterEnd = 'fuel' | 'depth' | 'host-memory' | undefined

export type Meter = {
  instantiate(sized: Sized, imports: WebAssembly.Imports): WebAssembly.Instance
  /** What all memories and tables take now. They never shrink: at the end it is the peak. */
  bytes(): number
  /** Whether any memory was refused. */
  refused(): boolean
  /** Units burnt, at most `fuelMax`. */
  fuelUsed(): number
  /** The bound that was passed, if any. */
  passed(): MeterEnd
}

/** Where no fuel is asked for: more than any guest burns in its time, and still exact as a JavaScript number. */
const FUEL_UNBOUNDED = Number.MAX_SAFE_INTEGER

const mib = (bytes: number): number => Math.ceil(bytes / (PAGE_BYTES * PAGES_PER_MIB))

type Globals = Record<(typeof METER_GLOBALS)[number], WebAssembly.Global>

const i64 = (value: number): WebAssembly.Global =>
  new WebAssembly.Global({ value: 'i64', mutable: true }, BigInt(value))

/** `fuelMax` null: as much as the time allows. */
export function createMeter(bounds: { memoryBytesMax: number; fuelMax: number | null }): Meter {
  const { memoryBytesMax } = bounds
  const fuelMax = bounds.fuelMax ?? FUEL_UNBOUNDED
  const globals: Globals = {
    fuel: i64(fuelMax),
    depth: i64(DEPTH_UNITS),
    memory: i64(memoryBytesMax),
    refused: new WebAssembly.Global({ value: 'i32', mutable: true }, GROWTH.granted),
  }
  let memories = 0
  const read = (name: keyof Globals): number => Number(globals[name].value)
  const bytes = (): number => memoryBytesMax - read('memory')
  const take = ({ bytesAtStart, memoriesAtStart }: Sized): void => {
    memories += memoriesAtStart
    if (memories > MEMORIES_MAX) refuse(`the guest has more than ${MEMORIES_MAX} memories`)
    const total = bytes() + bytesAtStart
    if (total > memoryBytesMax)
      refuse(
        `the guest's memories ask for ${mib(total)} MiB together; memMb allows ${mib(memoryBytesMax)}`,
      )
    globals.memory.value = BigInt(memoryBytesMax - total)
  }
  const refuse = (why: string): never => {
    globals.refused.value = GROWTH.budget
    throw new Error(why)
  }
  return {
    instantiate(sized, imports) {
      take(sized)
      return new WebAssembly.Instance(sized.module, { ...imports, [METER_MODULE]: globals })
    },
    bytes,
    refused: () => read('refused') !== GROWTH.granted,
    fuelUsed: () => Math.min(fuelMax, fuelMax - read('fuel')),
    passed() {
      if (read('fuel') < 0) return 'fuel'
      if (read('depth') < 0) return 'depth'
      return read('refused') === GROWTH.host ? 'host-memory' : undefined
    },
  }
}

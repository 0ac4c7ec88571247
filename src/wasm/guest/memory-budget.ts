// The memory of one invocation. A memory's own maximum caps it alone; a guest may have many, in many instances.
// 1. All of them together take at most the cap: at the start of each instance, and at each growth.
// 2. Only what grows in an instance's start function is counted late, when the instance stands: one memory's maximum.
import { Buffer } from 'node:buffer'
import {
  MEMORIES_MAX,
  PAGE_BYTES,
  PAGES_PER_MIB,
  RESERVED_PREFIX,
} from '#wasm/binary/core-module.ts'
import { GRANT, GROWTH_REFUSED } from '#wasm/binary/growth.ts'

/** A core module and what its memories take before anything runs. */
export type Sized = { module: WebAssembly.Module; bytesAtStart: number }

export type MemoryBudget = {
  instantiate(sized: Sized, imports: WebAssembly.Imports): WebAssembly.Instance
  /** What all memories take now. Linear memory never shrinks: at the end it is the peak. */
  bytes(): number
  /** Whether any memory was refused. */
  refused(): boolean
}

/** `(module (import "" "" (func (param i32) (result i32))) (export "f" (func 0)))`: only such a function fits a table. */
const WRAPPER = Buffer.from('0061736d0100000001060160017f017f0205010000000007050101660000', 'hex')
let wrapper: WebAssembly.Module | undefined

function asWasm(grant: (pages: number) => number): unknown {
  wrapper ??= new WebAssembly.Module(WRAPPER)
  return new WebAssembly.Instance(wrapper, { '': { '': grant } }).exports['f']
}

const mib = (bytes: number): number => Math.ceil(bytes / (PAGE_BYTES * PAGES_PER_MIB))

export function createMemoryBudget(bytesMax: number): MemoryBudget {
  const memories: WebAssembly.Memory[] = []
  const flags: WebAssembly.Global[] = []
  let overdrawn = false
  let asked: unknown
  const bytes = (): number => memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)
  const grant = (pages: number): number =>
    bytes() + (pages >>> 0) * PAGE_BYTES <= bytesMax ? 1 : 0
  const check = (more: number): void => {
    const total = bytes() + more
    if (total <= bytesMax && memories.length <= MEMORIES_MAX) return
    overdrawn = true
    throw new Error(
      memories.length > MEMORIES_MAX
        ? `the guest has more than ${MEMORIES_MAX} memories`
        : `the guest's memories ask for ${mib(total)} MiB together; memMb allows ${mib(bytesMax)}`,
    )
  }
  const watch = ({ exports }: WebAssembly.Instance): void => {
    for (const [name, value] of Object.entries(exports)) {
      if (!name.startsWith(RESERVED_PREFIX)) continue
      if (value instanceof WebAssembly.Memory) memories.push(value)
      if (name === GROWTH_REFUSED && value instanceof WebAssembly.Global) flags.push(value)
      if (name === GRANT && value instanceof WebAssembly.Table)
        value.set(0, (asked ??= asWasm(grant)))
    }
  }
  return {
    instantiate({ module, bytesAtStart }, imports) {
      check(bytesAtStart)
      const instance = new WebAssembly.Instance(module, imports)
      watch(instance)
      check(0)
      return instance
    },
    bytes,
    refused: () => overdrawn || flags.some(({ value }) => value !== 0),
  }
}

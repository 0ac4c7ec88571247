// Runs one invocation of a compiled artifact on a fresh instance. Inside the restricted child only.
import type { Guest } from '#wasm/guest/guest.ts'
import type { GuestEnd } from '#wasm/child/frames.ts'
import { createMeter, type Meter, type Sized } from '#wasm/guest/meter.ts'
import { printable } from '#wasm/binary/safe-name.ts'
import { interfaceOf, PREVIEW1 } from '#wasm/offered.ts'
import { preview1Host } from '#wasm/guest/preview1.ts'
import { wasiHost } from '#wasm/guest/wasi-0-2.ts'

/** The generated glue's entry: the shape that jco's `instantiation: 'sync'` emits. */
export type Instantiate = (
  getCoreModule: (name: string) => WebAssembly.Module,
  imports: Record<string, unknown>,
  instantiateCore: (
    module: WebAssembly.Module,
    imports: WebAssembly.Imports,
  ) => WebAssembly.Instance,
) => Record<string, unknown>

export type Program = { memoryBytesMax: number } & (
  | {
      kind: 'component'
      imports: string[]
      instantiate: Instantiate
      modules: Map<string, Sized>
    }
  | { kind: 'preview1'; module: Sized }
)

export type Execution = { end: GuestEnd; memPeakBytes: number; fuelUsed: number | null }

const RUN = 'wasi:cli/run'

/** Function names in a trap message, and how much of them: names come from the guest. */
const FRAMES_MAX = 8
const NAME_CHARS_MAX = 120
const MESSAGE_CHARS_MAX = 1500

function start(program: Program, guest: Guest, meter: Meter): void {
  if (program.kind === 'preview1') return startPreview1(program.module, guest, meter)
  const host = wasiHost(guest)
  const imports: Record<string, unknown> = {}
  for (const name of program.imports) {
    imports[name] = host[interfaceOf(name)]
    imports[interfaceOf(name)] = host[interfaceOf(name)]
  }
  const sizedOf = new Map<WebAssembly.Module, Sized>()
  const getModule = (name: string): WebAssembly.Module => {
    const sized = program.modules.get(name)
    if (sized === undefined) throw new Error(`the glue asks for module ${name}`)
    sizedOf.set(sized.module, sized)
    return sized.module
  }
  const exports = program.instantiate(getModule, imports, (module, its) =>
    meter.instantiate(sizedOf.get(module) ?? { module, bytesAtStart: 0, memoriesAtStart: 0 }, its),
  )
  const run = Object.entries(exports).find(([name]) => interfaceOf(name) === RUN)?.[1]
  callRun(run)
}

function callRun(run: unknown): void {
  if (typeof run !== 'object' || run === null || !('run' in run) || typeof run.run !== 'function')
    throw new Error('the component exports no function run')
  run.run()
}

function startPreview1(module: Sized, guest: Guest, meter: Meter): void {
  let memory: WebAssembly.Memory | undefined
  const view = (): ArrayBuffer => {
    // A start function that calls its host before its memory is exported has no memory to point into.
    if (memory === undefined) throw new RangeError('no memory yet')
    return memory.buffer
  }
  const imports = { [PREVIEW1]: preview1Host(guest, view) }
  const { exports } = meter.instantiate(module, imports)
  if (exports['memory'] instanceof WebAssembly.Memory) memory = exports['memory']
  const entry = exports['_start']
  if (typeof entry !== 'function') throw new Error('the module exports no function _start')
  entry()
}

/** Names of the functions on the stack, innermost first, as far as the module has names. */
function wasmFrames(stack: string): string[] {
  return stack
    .split('\n')
    .filter((line) => line.includes('wasm://'))
    .map((line) => {
      const named = /^\s*at (.+) \(wasm:\/\//.exec(line)?.[1]
      const numbered = /(wasm-function\[\d+\])/.exec(line)?.[1]
      return (named ?? numbered ?? 'unknown').slice(0, NAME_CHARS_MAX)
    })
    .slice(0, FRAMES_MAX)
}

/** V8's words and the glue's, in one vocabulary: the component model's. */
const TRAP_WORDS: Readonly<Record<string, string>> = {
  unreachable: 'unreachable instruction executed',
  'wasm `unreachable` instruction executed': 'unreachable instruction executed',
  'memory access out of bounds': 'out of bounds memory access',
  'divide by zero': 'integer divide by zero',
  'remainder by zero': 'integer divide by zero',
  'divide result unrepresentable': 'integer overflow',
  'float unrepresentable in integer range': 'invalid conversion to integer',
  'table index is out of bounds': 'out of bounds table access',
  'undefined element: out of bounds table access': 'out of bounds table access',
  'function signature mismatch': 'indirect call type mismatch',
  'null function or function signature mismatch': 'indirect call type mismatch',
  'Maximum call stack size exceeded': 'call stack exhausted',
}

function wordsOf(error: Error): string {
  const words = error.message.replace(/^wasm trap: /, '')
  return Object.hasOwn(TRAP_WORDS, words) ? (TRAP_WORDS[words] ?? words) : words
}

/** `why`, or what the error says, and where it came from. */
function describe(error: unknown, why?: string): string {
  if (!(error instanceof Error)) return why ?? 'the guest failed with a value that is no error'
  const message = why ?? wordsOf(error)
  const frames = wasmFrames(error.stack ?? '')
  return printable(
    frames.length === 0 ? `${message}` : `${message} (at ${frames.join(' < ')})`,
    MESSAGE_CHARS_MAX,
  )
}

/** An instance that V8 cannot make room for is this host's shortage, not the guest's growth. */
const isHostShortage = (error: unknown): boolean =>
  error instanceof RangeError && /out of memory|could not allocate/i.test(error.message)

/** Runs the guest to its end; never throws for what a guest does. `fuelMax` null: as much as its time allows. */
export function execute(
  program: Program,
  guest: Guest,
  { fuelMax }: { fuelMax: number | null },
): Execution {
  const meter = createMeter({ memoryBytesMax: program.memoryBytesMax, fuelMax })
  let thrown: { error: unknown } | undefined
  try {
    start(program, guest, meter)
  } catch (error) {
    thrown = { error }
  }
  return {
    memPeakBytes: meter.bytes(),
    fuelUsed: meter.fuelUsed(),
    end: endOf(guest, thrown, meter),
  }
}

function endOf(guest: Guest, thrown: { error: unknown } | undefined, meter: Meter): GuestEnd {
  const passed = meter.passed()
  // A guest that ends a few steps past its fuel, before it was seen, has passed it all the same.
  if (passed === 'fuel')
    return { kind: 'fuel', message: describe(thrown?.error, `all of its fuel was burnt`) }
  // An exit is an exit even if the guest caught the exception that carries it.
  if (guest.exitCode !== undefined) return { kind: 'exited', exitCode: guest.exitCode }
  if (thrown === undefined) return { kind: 'exited', exitCode: 0 }
  const { error } = thrown
  // The glue throws the bare value of `run`'s error case, which has none.
  if (error === undefined) return { kind: 'exited', exitCode: 1 }
  if (passed === 'depth') return { kind: 'trap', message: describe(error, 'call stack exhausted') }
  if (passed === 'host-memory' || isHostShortage(error))
    return { kind: 'fault', message: describe(error, 'this host has not the memory') }
  return { kind: meter.refused() ? 'memory' : 'trap', message: describe(error) }
}

// Runs one invocation of a compiled artifact on a fresh instance. Inside the restricted child only.
import type { Guest } from '#wasm/guest/guest.ts'
import type { GuestEnd } from '#wasm/child/frames.ts'
import { GROWTH_REFUSED } from '#wasm/binary/growth.ts'
import { printable } from '#wasm/binary/safe-name.ts'
import { interfaceOf, PREVIEW1 } from '#wasm/offered.ts'
import { preview1Host } from '#wasm/guest/preview1.ts'
import { RESERVED_PREFIX } from '#wasm/binary/core-module.ts'
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

export type Program =
  | {
      kind: 'component'
      imports: string[]
      instantiate: Instantiate
      modules: Map<string, WebAssembly.Module>
    }
  | { kind: 'preview1'; module: WebAssembly.Module }

export type Execution = { end: GuestEnd; memPeakBytes: number }

const RUN = 'wasi:cli/run'

/** Function names in a trap message, and how much of them: names come from the guest. */
const FRAMES_MAX = 8
const NAME_CHARS_MAX = 120
const MESSAGE_CHARS_MAX = 1500

type Instances = WebAssembly.Instance[]

function start(program: Program, guest: Guest, instances: Instances): void {
  const track = (
    module: WebAssembly.Module,
    imports: WebAssembly.Imports,
  ): WebAssembly.Instance => {
    const instance = new WebAssembly.Instance(module, imports)
    instances.push(instance)
    return instance
  }
  if (program.kind === 'preview1') return startPreview1(program.module, guest, track)
  const host = wasiHost(guest)
  const imports: Record<string, unknown> = {}
  for (const name of program.imports) {
    imports[name] = host[interfaceOf(name)]
    imports[interfaceOf(name)] = host[interfaceOf(name)]
  }
  const getModule = (name: string): WebAssembly.Module => {
    const module = program.modules.get(name)
    if (module === undefined) throw new Error(`the glue asks for module ${name}`)
    return module
  }
  const exports = program.instantiate(getModule, imports, track)
  const run = Object.entries(exports).find(([name]) => interfaceOf(name) === RUN)?.[1]
  callRun(run)
}

function callRun(run: unknown): void {
  if (typeof run !== 'object' || run === null || !('run' in run) || typeof run.run !== 'function')
    throw new Error('the component exports no function run')
  run.run()
}

function startPreview1(
  module: WebAssembly.Module,
  guest: Guest,
  instantiate: (module: WebAssembly.Module, imports: WebAssembly.Imports) => WebAssembly.Instance,
): void {
  let memory: WebAssembly.Memory | undefined
  const view = (): ArrayBuffer => {
    // A start function that calls its host before its memory is exported has no memory to point into.
    if (memory === undefined) throw new RangeError('no memory yet')
    return memory.buffer
  }
  const imports = { [PREVIEW1]: preview1Host(guest, view) }
  const { exports } = instantiate(module, imports)
  if (exports['memory'] instanceof WebAssembly.Memory) memory = exports['memory']
  const entry = exports['_start']
  if (typeof entry !== 'function') throw new Error('the module exports no function _start')
  entry()
}

function ownExports(instances: Instances): { memPeakBytes: number; growthRefused: boolean } {
  let memPeakBytes = 0
  let growthRefused = false
  for (const { exports } of instances)
    for (const [name, value] of Object.entries(exports)) {
      if (!name.startsWith(RESERVED_PREFIX)) continue
      // Linear memory never shrinks: its size at the end is its peak.
      if (value instanceof WebAssembly.Memory) memPeakBytes += value.buffer.byteLength
      if (name === GROWTH_REFUSED && value instanceof WebAssembly.Global)
        growthRefused ||= value.value !== 0
    }
  return { memPeakBytes, growthRefused }
}

/** Names of the functions on the stack, innermost first, as far as the module has names. */
export function wasmFrames(stack: string): string[] {
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

function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'the guest failed with a value that is no error'
  const words = error.message.replace(/^wasm trap: /, '')
  const message = Object.hasOwn(TRAP_WORDS, words) ? TRAP_WORDS[words] : words
  const frames = wasmFrames(error.stack ?? '')
  return printable(
    frames.length === 0 ? `${message}` : `${message} (at ${frames.join(' < ')})`,
    MESSAGE_CHARS_MAX,
  )
}

/** An instance that V8 cannot make room for is this host's shortage, not the guest's growth. */
const isHostShortage = (error: unknown): boolean =>
  error instanceof RangeError && /out of memory|could not allocate/i.test(error.message)

/** Runs the guest to its end; never throws for what a guest does. */
export function execute(program: Program, guest: Guest): Execution {
  const instances: Instances = []
  let thrown: { error: unknown } | undefined
  try {
    start(program, guest, instances)
  } catch (error) {
    thrown = { error }
  }
  const { memPeakBytes, growthRefused } = ownExports(instances)
  return { memPeakBytes, end: endOf(guest, thrown, growthRefused) }
}

function endOf(
  guest: Guest,
  thrown: { error: unknown } | undefined,
  growthRefused: boolean,
): GuestEnd {
  // An exit is an exit even if the guest caught the exception that carries it.
  if (guest.exitCode !== undefined) return { kind: 'exited', exitCode: guest.exitCode }
  if (thrown === undefined) return { kind: 'exited', exitCode: 0 }
  const { error } = thrown
  // The glue throws the bare value of `run`'s error case, which has none.
  if (error === undefined) return { kind: 'exited', exitCode: 1 }
  if (isHostShortage(error)) return { kind: 'fault', message: describe(error) }
  return { kind: growthRefused ? 'memory' : 'trap', message: describe(error) }
}

// The program of a runner's child: compiles one artifact, then runs invocations of it one after the other.
// 1. It holds no rights: no files, no network, no processes, no environment, no code from strings.
// 2. It ends when its parent closes the pipe; in mid-invocation the kernel ends it with its parent.
import vm from 'node:vm'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { decodeArtifact } from '#wasm/artifact.ts'
import {
  ask,
  isBroken,
  parseJson,
  receive,
  send,
  sendJson,
  sendLastJson,
} from '#wasm/child/pipe.ts'
import { execute, type Instantiate, type Program } from '#wasm/guest/execute.ts'
import { DOWN, type GuestResult, type LoadRequest, readInvoke, UP } from '#wasm/child/frames.ts'
import { createGuest } from '#wasm/guest/guest.ts'
import { PAGE_BYTES, PAGES_PER_MIB } from '#wasm/binary/core-module.ts'
import { sizeAtStart } from '#wasm/binary/size-at-start.ts'

/**
 * What the guest's code and finished instances (mostly their memories) may take together before these are collected: half
 * of RUNNER_MEM_MB, so that the next guest has all of its own. A collection takes 3 to 8 ms of CPU, after the answer.
 */
const CODE_AND_GARBAGE_BYTES_MAX = 32 * 1024 * 1024

/** However large its code: a tiny guest's instances (64 KiB) are collected a hundred at a time. */
const GARBAGE_BYTES_MIN = 8 * 1024 * 1024

/** The language's own globals, and the few others that generated glue and this program need. */
const KEPT = new Set(
  (
    'Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date ' +
    'Promise RegExp Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError ' +
    'globalThis JSON Math Intl ArrayBuffer Atomics Uint8Array Int8Array Uint16Array Int16Array Uint32Array ' +
    'Int32Array BigUint64Array BigInt64Array Uint8ClampedArray Float32Array Float64Array Float16Array DataView ' +
    'Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect FinalizationRegistry WeakRef isFinite isNaN ' +
    'SuppressedError SharedArrayBuffer WebAssembly TextEncoder TextDecoder performance'
  ).split(' '),
)

/** Removes what is Node's from the global object, `process` and `Buffer` first of all. */
function scrubGlobals(): void {
  for (const key of Object.getOwnPropertyNames(globalThis))
    if (!KEPT.has(key) && !Reflect.deleteProperty(globalThis, key))
      Reflect.set(globalThis, key, undefined)
  // Node's console writes to fd 1, which carries frames.
  const silent = (): void => {}
  const console = { log: silent, error: silent, warn: silent, info: silent, debug: silent }
  Object.defineProperty(globalThis, 'console', { value: console })
}

const isInstantiate = (value: unknown): value is Instantiate => typeof value === 'function'

function instantiatorOf(glue: string): Instantiate {
  // A script, not a module: without a loader it has no `import` of its own either.
  const value: unknown = new vm.Script(glue, { filename: 'glue.js' }).runInThisContext()
  if (!isInstantiate(value)) throw new Error('the glue defines no function')
  return value
}

function load(bytes: Uint8Array, memMb: number): Program {
  const artifact = decodeArtifact(bytes)
  const modules = artifact.modules.map(
    ({ name, bytes: module }) =>
      [name, { module: new WebAssembly.Module(module), ...sizeAtStart(module) }] as const,
  )
  const memoryBytesMax = memMb * PAGES_PER_MIB * PAGE_BYTES
  if (artifact.kind === 'component') {
    const instantiate = instantiatorOf(artifact.glue)
    const { imports } = artifact
    return { kind: 'component', memoryBytesMax, imports, instantiate, modules: new Map(modules) }
  }
  const module = modules[0]?.[1]
  if (module === undefined) throw new Error('the artifact holds no module')
  return { kind: 'preview1', memoryBytesMax, module }
}

function pull(): Uint8Array {
  const { kind, payload } = ask(UP.want)
  if (kind !== DOWN.stdin) throw new Error(`frame ${kind} in place of stdin`)
  return payload
}

function invoke(program: Program, payload: Uint8Array): GuestResult {
  const began = systemClock.monotonic()
  const { request, stdin } = readInvoke(payload)
  const guest = createGuest(
    { ...request, stdin },
    { clock: systemClock, random: systemRandom, pull, emit: (to, bytes) => send(UP[to], bytes) },
  )
  const { end, memPeakBytes, fuelUsed } = execute(program, guest, request)
  if (!isBroken()) guest.flush()
  return {
    last: isBroken(),
    ...end,
    durationMs: systemClock.monotonic() - began,
    memPeakBytes,
    fuelUsed,
    stdoutTruncated: guest.truncated.stdout,
    stderrTruncated: guest.truncated.stderr,
  }
}

/** Of an artifact that does not load: it may quote what it found. */
const ERROR_CHARS_MAX = 1000

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error)

/** Loads the artifact that comes next, then serves invocations until the pipe closes. */
export function main(collect: () => void): never {
  scrubGlobals()
  send(UP.ready, new Uint8Array(0))
  const { memMb } = parseJson(receive().payload) as LoadRequest
  let program: Program
  let garbageBytesMax: number
  try {
    const { payload } = receive()
    program = load(payload, memMb)
    garbageBytesMax = Math.max(GARBAGE_BYTES_MIN, CODE_AND_GARBAGE_BYTES_MAX - payload.length)
  } catch (error) {
    sendJson(UP.loaded, { error: messageOf(error).slice(0, ERROR_CHARS_MAX) })
    throw error
  }
  sendJson(UP.loaded, {})
  let garbageBytes = 0
  for (;;) {
    const result = invoke(program, receive().payload)
    sendLastJson(UP.result, result)
    if (result.last) throw new Error('a host call was cut off')
    garbageBytes += result.memPeakBytes
    if (garbageBytes > garbageBytesMax) {
      collect()
      garbageBytes = 0
    }
  }
}

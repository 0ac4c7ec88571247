// One invocation as its host functions see it: arguments, bounded output, pulled input, time, exit.
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'
import { createOutput, type Stream } from '#wasm/guest/output.ts'

/** Random bytes in one call: larger than any real use, small enough that a guest cannot exhaust its host. */
export const RANDOM_BYTES_MAX = 16 * 1024 * 1024

/** The largest sleep one wait takes; longer ones loop. */
const WAIT_MS_MAX = 2 ** 30

export type Guest = {
  readonly args: readonly string[]
  readonly env: readonly (readonly [string, string])[]
  /** Up to `max` bytes of stdin, waiting for some; undefined at the end. */
  read(max: number): Uint8Array | undefined
  /** What is past the bound is dropped and marked in `truncated`. */
  write(to: Stream, bytes: Uint8Array): void
  /** Sends what was gathered of output. */
  flush(): void
  /** Wall time in ns since the epoch. */
  wallNs(): bigint
  monotonicNs(): bigint
  /** Blocks until the monotonic clock shows `ns`. */
  sleepUntil(ns: bigint): void
  random(count: number): Uint8Array
  /** Ends the guest: never returns. */
  exit(code: number): never
  /** What `exit` was called with; set once. */
  readonly exitCode: number | undefined
  readonly truncated: Readonly<Record<Stream, boolean>>
}

export type GuestPorts = {
  clock: Clock
  random: Random
  /** Sends a chunk that fits, before it returns. */
  emit: (to: Stream, bytes: Uint8Array) => void
  /** Asks for more stdin; empty at the end. What it returned last is used again. */
  pull: () => Uint8Array
}

export type GuestInput = {
  args: string[]
  env: [string, string][]
  stdin: Uint8Array
  stdinWhole: boolean
  /** Whether stdout goes on past its bound. */
  stdoutWhole: boolean
}

function stdinOf(input: GuestInput, pull: () => Uint8Array): Guest['read'] {
  let held = input.stdin
  let ended = input.stdinWhole
  return (max) => {
    if (max === 0) return new Uint8Array(0)
    if (held.length === 0 && !ended) {
      held = pull()
      ended = held.length === 0
    }
    if (held.length === 0) return undefined
    const taken = held.subarray(0, max)
    held = held.subarray(taken.length)
    return taken
  }
}

/** Nanoseconds from float milliseconds, keeping what a double holds of them. */
const toNs = (ms: number): bigint => {
  const whole = Math.floor(ms)
  return BigInt(whole) * 1_000_000n + BigInt(Math.floor((ms - whole) * 1e6))
}

/** One for all: it says nothing but that the guest is over, and taking a stack each time costs as much as the call. */
const EXITS = new Error('the guest exits')

const parking = new Int32Array(new SharedArrayBuffer(4))

export function createGuest(input: GuestInput, ports: GuestPorts): Guest {
  const { clock, random } = ports
  const { emit } = ports
  const output = createOutput({ clock, emit, stdoutWhole: input.stdoutWhole })
  let exitCode: number | undefined
  const monotonicNs = (): bigint => toNs(clock.monotonic())
  return {
    args: input.args,
    env: input.env,
    read: stdinOf(input, () => {
      output.flush()
      return ports.pull()
    }),
    write: output.write,
    flush: output.flush,
    wallNs: () => toNs(clock.now()),
    monotonicNs,
    sleepUntil(ns) {
      output.flush()
      for (let now = monotonicNs(); now < ns; now = monotonicNs()) {
        const ms = Number(ns - now) / 1e6
        Atomics.wait(parking, 0, 0, Math.min(ms, WAIT_MS_MAX))
      }
    },
    random(count) {
      if (count > RANDOM_BYTES_MAX)
        throw new Error(`${count} random bytes in one call, over ${RANDOM_BYTES_MAX}`)
      return random.bytes(count)
    },
    exit(code) {
      exitCode ??= code
      throw EXITS
    },
    get exitCode() {
      return exitCode
    },
    truncated: output.truncated,
  }
}

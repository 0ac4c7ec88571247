// The WASI 0.2 host: `cli/command` without files, sockets and HTTP, in the shape that the generated glue calls.
// Interfaces and signatures: WASI 0.2 WIT. A thrown error with a `payload` is the error case of a `result`.
import type { Guest } from '#wasm/guest/guest.ts'
import { OFFERED } from '#wasm/offered.ts'

/** Bytes a guest may write after one `check-write`. */
const WRITE_BYTES_MAX = 1024 * 1024
/** Bytes one read hands over at most, whatever was asked. */
const READ_BYTES_MAX = 256 * 1024
/** Pollables in one `poll`. */
const POLL_MAX = 10_000

/** The error case of a WASI result: thrown each time, made once, because a stack costs more than the call. */
const errorCase = (payload: unknown): Error => Object.assign(new Error('a WASI error'), { payload })

const CLOSED = errorCase({ tag: 'closed' })
const BAD_DESCRIPTOR = errorCase('bad-descriptor')

const clamp = (asked: bigint, max: number): number => (asked > BigInt(max) ? max : Number(asked))

/** One interface as the glue sees it. */
type Interface = Record<string, unknown>

/** Exit codes are 0–255; a larger one stays a failure instead of wrapping round to success. */
export const exitCodeOf = (code: number): number => Math.min(code >>> 0, 255)

const classFor = (names: readonly string[], resource: string, act: () => unknown): unknown => {
  class Resource {}
  for (const name of names) {
    const [, owner, method] = /^\[method\]([^.]+)\.(.+)$/.exec(name) ?? []
    if (owner !== resource || method === undefined) continue
    Object.defineProperty(Resource.prototype, camel(method), { value: act, configurable: true })
  }
  return Resource
}

/** 'get-random-bytes' → 'getRandomBytes'. */
export const camel = (kebab: string): string =>
  kebab.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())

class Pollable {
  readonly #guest: Guest
  /** Monotonic ns from which it is ready. */
  readonly at: bigint
  constructor(guest: Guest, at: bigint) {
    this.#guest = guest
    this.at = at
  }
  ready(): boolean {
    return this.#guest.monotonicNs() >= this.at
  }
  block(): void {
    this.#guest.sleepUntil(this.at)
  }
}

class WasiError {
  toDebugString(): string {
    return 'stream closed'
  }
}

class InputStream {
  readonly #guest: Guest
  constructor(guest: Guest) {
    this.#guest = guest
  }
  read(length: bigint): Uint8Array {
    const bytes = this.#guest.read(clamp(length, READ_BYTES_MAX))
    if (bytes === undefined) throw CLOSED
    return bytes
  }
  blockingRead(length: bigint): Uint8Array {
    return this.read(length)
  }
  skip(length: bigint): bigint {
    return BigInt(this.read(length).length)
  }
  blockingSkip(length: bigint): bigint {
    return this.skip(length)
  }
  subscribe(): Pollable {
    return new Pollable(this.#guest, 0n)
  }
}

class OutputStream {
  readonly #guest: Guest
  readonly #to: 'stdout' | 'stderr'
  constructor(guest: Guest, to: 'stdout' | 'stderr') {
    this.#guest = guest
    this.#to = to
  }
  checkWrite(): bigint {
    return BigInt(WRITE_BYTES_MAX)
  }
  write(bytes: Uint8Array): void {
    this.#guest.write(this.#to, bytes)
  }
  blockingWriteAndFlush(bytes: Uint8Array): void {
    this.write(bytes)
  }
  flush(): void {}
  blockingFlush(): void {}
  subscribe(): Pollable {
    return new Pollable(this.#guest, 0n)
  }
  writeZeroes(length: bigint): void {
    this.write(new Uint8Array(clamp(length, WRITE_BYTES_MAX)))
  }
  blockingWriteZeroesAndFlush(length: bigint): void {
    this.writeZeroes(length)
  }
  splice(source: InputStream, length: bigint): bigint {
    const bytes = source.read(length)
    this.write(bytes)
    return BigInt(bytes.length)
  }
  blockingSplice(source: InputStream, length: bigint): bigint {
    return this.splice(source, length)
  }
}

/** Indexes of the ready ones; waits for the first when none is. */
function poll(guest: Guest, pollables: Pollable[]): Uint32Array {
  if (pollables.length === 0 || pollables.length > POLL_MAX)
    throw new Error(`poll takes 1 to ${POLL_MAX} pollables, found ${pollables.length}`)
  const first = pollables.reduce((least, { at }) => (at < least ? at : least), 2n ** 64n)
  guest.sleepUntil(first)
  const now = guest.monotonicNs()
  return Uint32Array.from(pollables.flatMap(({ at }, i) => (at <= now ? [i] : [])))
}

const cli = (guest: Guest): Record<string, Interface> => ({
  'wasi:cli/environment': {
    getEnvironment: () => guest.env,
    getArguments: () => guest.args,
    initialCwd: () => undefined,
  },
  'wasi:cli/exit': {
    exit: (status: { tag: string }) => guest.exit(status.tag === 'err' ? 1 : 0),
    exitWithCode: (code: number) => guest.exit(exitCodeOf(code)),
  },
  'wasi:cli/terminal-input': { TerminalInput: class {} },
  'wasi:cli/terminal-output': { TerminalOutput: class {} },
  'wasi:cli/terminal-stdin': { getTerminalStdin: () => undefined },
  'wasi:cli/terminal-stdout': { getTerminalStdout: () => undefined },
  'wasi:cli/terminal-stderr': { getTerminalStderr: () => undefined },
})

function io(guest: Guest): Record<string, Interface> {
  const stdin = new InputStream(guest)
  const stdout = new OutputStream(guest, 'stdout')
  const stderr = new OutputStream(guest, 'stderr')
  return {
    'wasi:cli/stdin': { getStdin: () => stdin },
    'wasi:cli/stdout': { getStdout: () => stdout },
    'wasi:cli/stderr': { getStderr: () => stderr },
    'wasi:io/error': { Error: WasiError },
    'wasi:io/poll': { Pollable, poll: (all: Pollable[]) => poll(guest, all) },
    'wasi:io/streams': { InputStream, OutputStream },
  }
}

const clocks = (guest: Guest): Record<string, Interface> => ({
  'wasi:clocks/wall-clock': {
    now: () => {
      const ns = guest.wallNs()
      return { seconds: ns / 1_000_000_000n, nanoseconds: Number(ns % 1_000_000_000n) }
    },
    resolution: () => ({ seconds: 0n, nanoseconds: 1_000_000 }),
  },
  'wasi:clocks/monotonic-clock': {
    now: () => guest.monotonicNs(),
    resolution: () => 1000n,
    subscribeInstant: (at: bigint) => new Pollable(guest, at),
    subscribeDuration: (ns: bigint) => new Pollable(guest, guest.monotonicNs() + ns),
  },
})

function chance(guest: Guest): Record<string, Interface> {
  const bytes = (length: bigint): Uint8Array => guest.random(Number(length))
  const u64 = (): bigint => new DataView(guest.random(8).slice().buffer).getBigUint64(0, true)
  return {
    'wasi:random/random': { getRandomBytes: bytes, getRandomU64: u64 },
    'wasi:random/insecure': { getInsecureRandomBytes: bytes, getInsecureRandomU64: u64 },
    'wasi:random/insecure-seed': {
      insecureSeed: () => [u64(), u64()],
      getInsecureSeed: () => [u64(), u64()],
    },
  }
}

/** No descriptor can exist without a preopen: the methods are there for the glue to bind, and refuse. */
function makeFiles(): Record<string, Interface> {
  const names = OFFERED['wasi:filesystem/types'] ?? []
  const refuse = (): never => {
    throw BAD_DESCRIPTOR
  }
  return {
    'wasi:filesystem/preopens': { getDirectories: () => [] },
    'wasi:filesystem/types': {
      Descriptor: classFor(names, 'descriptor', refuse),
      DirectoryEntryStream: classFor(names, 'directory-entry-stream', refuse),
      filesystemErrorCode: () => undefined,
    },
  }
}

const FILES = makeFiles()

/** The host's interfaces by name without version, bound to one invocation. */
export const wasiHost = (guest: Guest): Record<string, Interface> => ({
  ...cli(guest),
  ...io(guest),
  ...clocks(guest),
  ...chance(guest),
  ...FILES,
})

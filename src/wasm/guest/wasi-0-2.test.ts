import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { seededRandom } from '#lib/random.ts'
import { createGuest, type Guest, type GuestPorts } from '#wasm/guest/guest.ts'
import { STDOUT_BYTES_MAX } from '#wasm/guest/output.ts'
import { OFFERED } from '#wasm/offered.ts'
import { camel, exitCodeOf, wasiHost } from '#wasm/guest/wasi-0-2.ts'

type Pollable = { ready(): boolean }
type Input = {
  read(length: bigint): Uint8Array
  blockingRead(length: bigint): Uint8Array
  skip(length: bigint): bigint
  subscribe(): Pollable
}
type Output = {
  write(bytes: Uint8Array): void
  writeZeroes(length: bigint): void
  blockingWriteAndFlush(bytes: Uint8Array): void
  blockingSplice(from: Input, length: bigint): bigint
}
/** The part of the host that these tests call, as the glue sees it. */
type Host = {
  'wasi:cli/stdin': { getStdin(): Input }
  'wasi:cli/stdout': { getStdout(): Output }
  'wasi:cli/exit': { exit(status: { tag: string }): void; exitWithCode(code: number): void }
  'wasi:cli/environment': { getArguments(): string[]; getEnvironment(): [string, string][] }
  'wasi:clocks/wall-clock': { now(): unknown }
  'wasi:clocks/monotonic-clock': { now(): bigint; subscribeDuration(ns: bigint): Pollable }
  'wasi:random/random': { getRandomBytes(length: bigint): Uint8Array; getRandomU64(): bigint }
  'wasi:io/poll': { poll(all: Pollable[]): Uint32Array }
  'wasi:filesystem/preopens': { getDirectories(): unknown[] }
  'wasi:filesystem/types': { Descriptor: new () => { openAt(): void } }
}

type Given = { host: Host; all: Record<string, unknown>; out: Buffer[]; guest: Guest }

function hostOf(stdin: string[] = []): Given {
  const out: Buffer[] = []
  const chunks = stdin.map((text) => Buffer.from(text))
  const ports: GuestPorts = {
    clock: fakeClock(1_767_225_600_123),
    random: seededRandom(1),
    emit: (_, bytes) => void out.push(Buffer.from(bytes)),
    pull: () => chunks.shift() ?? new Uint8Array(0),
  }
  const input = {
    args: ['p', 'a'],
    env: [['K', 'v'] as [string, string]],
    stdin: new Uint8Array(0),
    stdinWhole: false,
    stdoutWhole: false,
  }
  const guest = createGuest(input, ports)
  const all = wasiHost(guest)
  return { host: all as unknown as Host, all, out, guest }
}

const payloadOf = (act: () => unknown): unknown => {
  try {
    act()
  } catch (error) {
    assert.ok(error instanceof Error && Object.hasOwn(error, 'payload'))
    return Reflect.get(error, 'payload')
  }
  return assert.fail('did not fail')
}

test('FN-5 every offered function exists under the name the glue calls', () => {
  const { all } = hostOf()
  const at = (holder: unknown, key: string): unknown =>
    typeof holder === 'object' || typeof holder === 'function'
      ? Reflect.get(holder ?? {}, key)
      : undefined
  for (const [name, functions] of Object.entries(OFFERED)) {
    assert.ok(all[name], name)
    for (const full of functions) {
      const [, resource, method] = /^\[method\]([^.]+)\.(.+)$/.exec(full) ?? []
      const holder: unknown =
        resource === undefined ? all[name] : at(at(all[name], camel(`-${resource}`)), 'prototype')
      assert.equal(typeof at(holder, camel(method ?? full)), 'function', `${name} ${full}`)
    }
  }
  assert.deepEqual(Object.keys(all).toSorted(), Object.keys(OFFERED).toSorted())
})

test('FN-3 stdin is read as it comes and closes at its end', () => {
  const { host } = hostOf(['hello ', 'world'])
  const stdin = host['wasi:cli/stdin'].getStdin()
  assert.equal(Buffer.from(stdin.read(3n)).toString(), 'hel')
  assert.equal(Buffer.from(stdin.blockingRead(100n)).toString(), 'lo ')
  assert.equal(stdin.skip(2n), 2n)
  assert.equal(Buffer.from(stdin.read(2n ** 64n - 1n)).toString(), 'rld')
  assert.deepEqual(
    payloadOf(() => stdin.blockingRead(1n)),
    { tag: 'closed' },
  )
  assert.equal(stdin.read(0n).length, 0)
})

test('FN-3 stdout is cut at its limit and says so', () => {
  const { host, out, guest } = hostOf(['spliced'])
  const stdout = host['wasi:cli/stdout'].getStdout()
  stdout.write(Buffer.from('a'))
  stdout.writeZeroes(2n)
  assert.equal(stdout.blockingSplice(host['wasi:cli/stdin'].getStdin(), 100n), 7n)
  assert.equal(Buffer.concat(out).toString(), 'a\0\0spliced')
  for (let i = 0; i < 3; i++) stdout.blockingWriteAndFlush(new Uint8Array(STDOUT_BYTES_MAX / 2))
  assert.equal(Buffer.concat(out).length, STDOUT_BYTES_MAX)
  assert.deepEqual(guest.truncated, { stdout: true, stderr: false })
})

test('FN-3 exit ends the guest with its code, whoever catches it', () => {
  const { host, guest } = hostOf()
  assert.throws(() => host['wasi:cli/exit'].exitWithCode(137), /exits/)
  assert.equal(guest.exitCode, 137)
  assert.throws(() => host['wasi:cli/exit'].exit({ tag: 'ok' }), /exits/)
  assert.equal(guest.exitCode, 137)
  assert.deepEqual([0, 1, 255, 256, -1].map(exitCodeOf), [0, 1, 255, 255, 255])
})

test('FN-5 clocks, environment and randomness are what the guest was given', () => {
  const { host } = hostOf()
  assert.deepEqual(host['wasi:clocks/wall-clock'].now(), {
    seconds: 1_767_225_600n,
    nanoseconds: 123_000_000,
  })
  assert.equal(host['wasi:clocks/monotonic-clock'].now(), 0n)
  assert.deepEqual(host['wasi:cli/environment'].getArguments(), ['p', 'a'])
  assert.deepEqual(host['wasi:cli/environment'].getEnvironment(), [['K', 'v']])
  assert.equal(host['wasi:random/random'].getRandomBytes(40n).length, 40)
  assert.equal(typeof host['wasi:random/random'].getRandomU64(), 'bigint')
  assert.throws(
    () => host['wasi:random/random'].getRandomBytes(2n ** 63n),
    /random bytes in one call/,
  )
})

test('FN-5 poll answers the ready ones and refuses an empty list', () => {
  const { host } = hostOf()
  const poll = (all: Pollable[]): Uint32Array => host['wasi:io/poll'].poll(all)
  const ready = host['wasi:cli/stdin'].getStdin().subscribe()
  const later = host['wasi:clocks/monotonic-clock'].subscribeDuration(10n ** 18n)
  assert.deepEqual([...poll([later, ready, ready])], [1, 2])
  assert.equal(later.ready(), false)
  assert.throws(() => poll([]), /1 to 10000 pollables, found 0/)
})

test('FN-4 there are no directories, and a descriptor refuses', () => {
  const { host } = hostOf()
  assert.deepEqual(host['wasi:filesystem/preopens'].getDirectories(), [])
  const Descriptor = host['wasi:filesystem/types'].Descriptor
  assert.equal(
    payloadOf(() => new Descriptor().openAt()),
    'bad-descriptor',
  )
})

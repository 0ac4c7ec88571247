import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { seededRandom } from '#lib/random.ts'
import { createGuest, type GuestPorts } from '#wasm/guest/guest.ts'
import { PREVIEW1_FUNCTIONS } from '#wasm/offered.ts'
import { preview1Host } from '#wasm/guest/preview1.ts'

const ERRNO = { success: 0, badf: 8, fault: 21, inval: 28, notsock: 57, spipe: 70 }

type Call = (name: string, ...args: (number | bigint)[]) => unknown

function guestOf(stdin: string[] = []): {
  call: Call
  view: DataView
  memory: Uint8Array
  out: Record<string, string>
} {
  const buffer = new ArrayBuffer(65536)
  const chunks = stdin.map((text) => Buffer.from(text))
  const out: Record<string, string> = { stdout: '', stderr: '' }
  const ports: GuestPorts = {
    clock: fakeClock(1_767_225_600_123),
    random: seededRandom(1),
    emit: (to, bytes) => void (out[to] += Buffer.from(bytes).toString()),
    pull: () => chunks.shift() ?? new Uint8Array(0),
  }
  const guest = createGuest(
    {
      args: ['p', 'ü'],
      env: [['K', 'v']],
      stdin: new Uint8Array(0),
      stdinWhole: false,
      stdoutWhole: false,
    },
    ports,
  )
  const host = preview1Host(guest, () => buffer)
  const call: Call = (name, ...args) => {
    const found = host[name]
    assert.ok(typeof found === 'function', name)
    return found(...args)
  }
  return { call, view: new DataView(buffer), memory: new Uint8Array(buffer), out }
}

/** A list of one buffer at 16, of `length` bytes at 1024. */
function oneBuffer(view: DataView, length: number): void {
  view.setUint32(16, 1024, true)
  view.setUint32(20, length, true)
}

test('FN-5 every function of preview 1 is there', () => {
  const { call } = guestOf()
  for (const name of PREVIEW1_FUNCTIONS)
    if (name !== 'proc_exit') assert.equal(typeof call(name), 'number', name)
  assert.throws(() => call('proc_exit', 3), /exits/)
})

test('FN-3 reading is short rather than waiting, and zero at the end', () => {
  const { call, view, memory } = guestOf(['abc', 'defgh'])
  const read = (length: number): string => {
    oneBuffer(view, length)
    assert.equal(call('fd_read', 0, 16, 1, 24), ERRNO.success)
    return Buffer.from(memory.subarray(1024, 1024 + view.getUint32(24, true))).toString()
  }
  assert.deepEqual(
    [read(2), read(100), read(3), read(100), read(100)],
    ['ab', 'c', 'def', 'gh', ''],
  )
})

test('FN-3 writing gathers its buffers in order', () => {
  const { call, view, memory, out } = guestOf()
  memory.set(Buffer.from('hello world'), 1024)
  oneBuffer(view, 6)
  view.setUint32(24, 1030, true)
  view.setUint32(28, 5, true)
  assert.equal(call('fd_write', 2, 16, 2, 40), ERRNO.success)
  assert.equal(view.getUint32(40, true), 11)
  assert.deepEqual(out, { stdout: '', stderr: 'hello world' })
})

test('FN-3 the wrong descriptor, too many buffers and foreign pointers are errnos', () => {
  const { call, view } = guestOf(['abc'])
  oneBuffer(view, 4)
  assert.equal(call('fd_write', 0, 16, 1, 24), ERRNO.badf)
  assert.equal(call('fd_read', 1, 16, 1, 24), ERRNO.badf)
  assert.equal(call('fd_write', 3, 16, 1, 24), ERRNO.badf)
  assert.equal(call('fd_write', 1, 16, 5000, 24), ERRNO.inval)
  assert.equal(call('fd_write', 1, -4, 1, 24), ERRNO.fault)
  assert.equal(call('fd_write', 1, 16, 1, 65535), ERRNO.fault)
  view.setUint32(16, 65534, true)
  assert.equal(call('fd_write', 1, 16, 1, 24), ERRNO.fault)
  assert.equal(call('args_get', 65534, 0), ERRNO.fault)
  assert.equal(call('random_get', 0, -1), ERRNO.fault)
  assert.equal(call('poll_oneoff', 0, 0, 0, 24), ERRNO.inval)
  assert.equal(call('clock_time_get', 9, 0n, 24), ERRNO.inval)
})

test('FN-4 closing is final, and nothing but stdio was ever open', () => {
  const { call, view } = guestOf()
  oneBuffer(view, 4)
  assert.equal(call('fd_close', 1), ERRNO.success)
  assert.equal(call('fd_write', 1, 16, 1, 24), ERRNO.badf)
  assert.equal(call('fd_close', 1), ERRNO.badf)
  assert.equal(call('fd_prestat_get', 3, 64), ERRNO.badf)
  assert.equal(call('fd_seek', 2, 0n, 0, 64), ERRNO.spipe)
  assert.equal(call('sock_accept', 3, 0, 64), ERRNO.notsock)
})

test('FN-5 descriptors say what they can do', () => {
  const { call, view } = guestOf()
  assert.equal(call('fd_fdstat_get', 0, 64), ERRNO.success)
  assert.equal(view.getBigUint64(72, true) & 2n, 2n)
  assert.equal(call('fd_fdstat_get', 1, 64), ERRNO.success)
  assert.equal(view.getBigUint64(72, true) & 64n, 64n)
  assert.equal(call('fd_filestat_get', 1, 64), ERRNO.success)
})

test('FN-5 the wall clock is in nanoseconds since the epoch', () => {
  const { call, view } = guestOf()
  assert.equal(call('clock_time_get', 0, 1n, 64), ERRNO.success)
  assert.equal(view.getBigUint64(64, true), 1_767_225_600_123_000_000n)
})

test('FN-5 poll answers what is ready with the data of its subscription', () => {
  const { call, view } = guestOf()
  const subscribe = (at: number, userdata: bigint, tag: number, fd: number): void => {
    view.setBigUint64(at, userdata, true)
    view.setUint8(at + 8, tag)
    view.setUint32(at + 16, fd, true)
  }
  subscribe(64, 11n, 1, 0)
  subscribe(112, 22n, 0, 1)
  view.setBigUint64(112 + 24, 10n ** 15n, true)
  subscribe(160, 33n, 2, 7)
  assert.equal(call('poll_oneoff', 64, 1024, 3, 512), ERRNO.success)
  assert.equal(view.getUint32(512, true), 2)
  assert.deepEqual(
    [view.getBigUint64(1024, true), view.getUint16(1032, true), view.getUint8(1034)],
    [11n, 0, 1],
  )
  assert.deepEqual([view.getBigUint64(1056, true), view.getUint16(1064, true)], [33n, ERRNO.badf])
})

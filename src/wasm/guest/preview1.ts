// The WASI preview 1 host: args, env, stdio, clocks, random, poll, exit. No files and no sockets: their
// functions exist and answer with an errno. Layouts and errno values: WASI snapshot preview1 witx.
import type { Guest } from '#wasm/guest/guest.ts'
import { PREVIEW1_FUNCTIONS } from '#wasm/offered.ts'
import { exitCodeOf } from '#wasm/guest/wasi-0-2.ts'

const ERRNO = {
  success: 0,
  badf: 8,
  fault: 21,
  inval: 28,
  nosys: 52,
  notsock: 57,
  spipe: 70,
} as const

const STDIN = 0
const STDOUT = 1
const STDERR = 2

/** Filetype `unknown`: neither a terminal nor a file; libc then buffers fully, as for a pipe. */
const FILETYPE_UNKNOWN = 0
const RIGHT_FD_READ = 1n << 1n
const RIGHT_FD_WRITE = 1n << 6n
const RIGHT_POLL = 1n << 27n

const CLOCK_REALTIME = 0

const EVENT_CLOCK = 0
const SUBSCRIPTION_BYTES = 48
const EVENT_BYTES = 32
const SUBSCRIPTION_ABSTIME = 1
/** Subscriptions in one poll, and buffers in one read or write (Linux IOV_MAX). */
const SUBSCRIPTIONS_MAX = 4096
const IOVS_MAX = 1024

type Errno = number
type HostFunction = (...args: number[]) => Errno

/** Where the guest's memory is now: growing replaces the buffer. */
export type MemoryView = () => ArrayBuffer

type Host = { guest: Guest; view(): DataView; bytes(at: number, length: number): Uint8Array }

const encoder = new TextEncoder()

/** args and environ share their layout: pointers, then strings ended by a zero byte. */
function stringList(host: Host, texts: readonly string[], name: 'args' | 'environ'): HostTable {
  const encoded = texts.map((text) => encoder.encode(`${text}\0`))
  const total = encoded.reduce((sum, one) => sum + one.length, 0)
  return {
    [`${name}_sizes_get`]: (countAt = 0, sizeAt = 0) => {
      host.view().setUint32(countAt >>> 0, encoded.length, true)
      host.view().setUint32(sizeAt >>> 0, total, true)
      return ERRNO.success
    },
    [`${name}_get`]: (pointersAt = 0, stringsAt = 0) => {
      let at = stringsAt >>> 0
      encoded.forEach((one, i) => {
        host.view().setUint32((pointersAt >>> 0) + i * 4, at, true)
        host.bytes(at, one.length).set(one)
        at += one.length
      })
      return ERRNO.success
    },
  }
}

type HostTable = Record<string, HostFunction>

/** The buffers of a scatter/gather list. */
function buffers(host: Host, iovsAt: number, count: number): Uint8Array[] {
  const view = host.view()
  return Array.from({ length: count }, (_, i) => {
    const at = (iovsAt >>> 0) + i * 8
    return host.bytes(view.getUint32(at, true), view.getUint32(at + 4, true))
  })
}

function readInto(host: Host, targets: Uint8Array[]): number {
  let total = 0
  for (const target of targets) {
    if (target.length === 0) continue
    const got = host.guest.read(target.length)
    if (got === undefined) break
    target.set(got)
    total += got.length
    // A short read ends the call: waiting for more would block a guest that could already work.
    if (got.length < target.length) break
  }
  return total
}

function stdio(host: Host): HostTable {
  const open = new Set([STDIN, STDOUT, STDERR])
  return {
    fd_read: (fd = 0, iovsAt = 0, count = 0, sizeAt = 0) => {
      if (!open.has(fd) || fd !== STDIN) return ERRNO.badf
      if (count >>> 0 > IOVS_MAX) return ERRNO.inval
      host.view().setUint32(sizeAt >>> 0, readInto(host, buffers(host, iovsAt, count)), true)
      return ERRNO.success
    },
    fd_write: (fd = 0, iovsAt = 0, count = 0, sizeAt = 0) => {
      if (!open.has(fd) || fd === STDIN) return ERRNO.badf
      if (count >>> 0 > IOVS_MAX) return ERRNO.inval
      const sources = buffers(host, iovsAt, count)
      const total = sources.reduce((sum, one) => sum + one.length, 0)
      if (total > 0xffff_ffff) return ERRNO.inval
      for (const one of sources) host.guest.write(fd === STDOUT ? 'stdout' : 'stderr', one)
      host.view().setUint32(sizeAt >>> 0, total, true)
      return ERRNO.success
    },
    fd_close: (fd = 0) => (open.delete(fd) ? ERRNO.success : ERRNO.badf),
    fd_fdstat_get: (fd = 0, at = 0) => {
      if (!open.has(fd)) return ERRNO.badf
      host.bytes(at, 24).fill(0)
      host.view().setUint8(at >>> 0, FILETYPE_UNKNOWN)
      const rights = (fd === STDIN ? RIGHT_FD_READ : RIGHT_FD_WRITE) | RIGHT_POLL
      host.view().setBigUint64((at >>> 0) + 8, rights, true)
      return ERRNO.success
    },
    fd_filestat_get: (fd = 0, at = 0) => {
      if (!open.has(fd)) return ERRNO.badf
      host.bytes(at, 64).fill(0)
      return ERRNO.success
    },
    fd_seek: (fd = 0) => (open.has(fd) ? ERRNO.spipe : ERRNO.badf),
    fd_tell: (fd = 0) => (open.has(fd) ? ERRNO.spipe : ERRNO.badf),
    fd_fdstat_set_flags: (fd = 0) => (open.has(fd) ? ERRNO.success : ERRNO.badf),
    fd_sync: (fd = 0) => (open.has(fd) ? ERRNO.inval : ERRNO.badf),
    fd_datasync: (fd = 0) => (open.has(fd) ? ERRNO.inval : ERRNO.badf),
  }
}

function nowOf(guest: Guest, clock: number): bigint | undefined {
  if (clock === CLOCK_REALTIME) return guest.wallNs()
  // CPU-time clocks count what the guest ran: its own time since the process began is a fair stand-in.
  return clock > 3 || clock < 0 ? undefined : guest.monotonicNs()
}

function clocks(host: Host): Record<string, unknown> {
  return {
    clock_time_get: (clock: number, _precision: bigint, at: number): Errno => {
      const now = nowOf(host.guest, clock)
      if (now === undefined) return ERRNO.inval
      host.view().setBigUint64(at >>> 0, now, true)
      return ERRNO.success
    },
    clock_res_get: (clock: number, at: number): Errno => {
      if (nowOf(host.guest, clock) === undefined) return ERRNO.inval
      host.view().setBigUint64(at >>> 0, clock === CLOCK_REALTIME ? 1_000_000n : 1000n, true)
      return ERRNO.success
    },
  }
}

type Subscription = { userdata: bigint; tag: number; fd: number; dueNs: bigint; errno: Errno }

/** Reads one subscription; `dueNs` is monotonic, 0 for a descriptor, which is always ready. */
function subscription(host: Host, at: number): Subscription {
  const view = host.view()
  const userdata = view.getBigUint64(at, true)
  const tag = view.getUint8(at + 8)
  if (tag !== EVENT_CLOCK) {
    const fd = view.getUint32(at + 16, true)
    return { userdata, tag, fd, dueNs: 0n, errno: fd > STDERR ? ERRNO.badf : ERRNO.success }
  }
  const clock = view.getUint32(at + 16, true)
  const now = nowOf(host.guest, clock)
  if (now === undefined) return { userdata, tag, fd: 0, dueNs: 0n, errno: ERRNO.inval }
  const timeout = view.getBigUint64(at + 24, true)
  const absolute = (view.getUint16(at + 40, true) & SUBSCRIPTION_ABSTIME) !== 0
  const waitNs = absolute ? timeout - now : timeout
  return { userdata, tag, fd: 0, dueNs: host.guest.monotonicNs() + waitNs, errno: ERRNO.success }
}

function pollOneoff(host: Host, inAt: number, outAt: number, count: number): number {
  const all = Array.from({ length: count }, (_, i) =>
    subscription(host, (inAt >>> 0) + i * SUBSCRIPTION_BYTES),
  )
  host.guest.sleepUntil(
    all.reduce((least, { dueNs }) => (dueNs < least ? dueNs : least), 1n << 64n),
  )
  const now = host.guest.monotonicNs()
  const due = all.filter(({ dueNs }) => dueNs <= now)
  due.forEach(({ userdata, tag, errno }, i) => {
    const at = (outAt >>> 0) + i * EVENT_BYTES
    host.bytes(at, EVENT_BYTES).fill(0)
    const view = host.view()
    view.setBigUint64(at, userdata, true)
    view.setUint16(at + 8, errno, true)
    view.setUint8(at + 10, tag)
    if (tag !== EVENT_CLOCK) view.setBigUint64(at + 16, 1n, true)
  })
  return due.length
}

function rest(host: Host): HostTable {
  return {
    poll_oneoff: (inAt = 0, outAt = 0, count = 0, countAt = 0) => {
      if (count >>> 0 === 0 || count >>> 0 > SUBSCRIPTIONS_MAX) return ERRNO.inval
      host.view().setUint32(countAt >>> 0, pollOneoff(host, inAt, outAt, count), true)
      return ERRNO.success
    },
    random_get: (at = 0, length = 0) => {
      host.bytes(at, length).set(host.guest.random(length >>> 0))
      return ERRNO.success
    },
    sched_yield: () => ERRNO.success,
    proc_exit: (code = 0) => host.guest.exit(exitCodeOf(code)),
    proc_raise: () => ERRNO.nosys,
  }
}

/** What the functions of files and sockets answer: no such descriptor exists. */
const absent = (name: string): HostFunction => {
  const errno = name.startsWith('sock_') ? ERRNO.notsock : ERRNO.badf
  return () => errno
}

const ABSENT = Object.fromEntries(PREVIEW1_FUNCTIONS.map((name) => [name, absent(name)]))

/** A pointer outside the memory is the guest's mistake and its errno, not the host's failure. */
const guarded =
  (run: (...args: never[]) => unknown) =>
  (...args: never[]): unknown => {
    try {
      return run(...args)
    } catch (error) {
      if (error instanceof RangeError && !/call stack/i.test(error.message)) return ERRNO.fault
      throw error
    }
  }

/** The functions of `wasi_snapshot_preview1`, bound to one invocation. */
export function preview1Host(guest: Guest, memory: MemoryView): Record<string, unknown> {
  const host: Host = {
    guest,
    view: () => new DataView(memory()),
    bytes: (at, length) => new Uint8Array(memory(), at >>> 0, length >>> 0),
  }
  const environ = guest.env.map(([key, value]) => `${key}=${value}`)
  const table: Record<string, unknown> = {
    ...stringList(host, guest.args, 'args'),
    ...stringList(host, environ, 'environ'),
    ...stdio(host),
    ...clocks(host),
    ...rest(host),
  }
  const functions: Record<string, unknown> = { ...ABSENT }
  for (const [name, run] of Object.entries(table))
    if (isCallable(run)) functions[name] = guarded(run)
  return functions
}

const isCallable = (value: unknown): value is (...args: never[]) => unknown =>
  typeof value === 'function'

// Writes what messages consist of as CBOR, byte for byte as cborg writes it, at less than half of its cost: a message
// is written a few times an invocation on each side, and cborg makes a token of every key and every value, to sort them.
//
// Invariants
// 1. The bytes are cborg's for every value (codec.test.ts holds them against each other): what is not text, a safe
//    integer, a long fraction, a truth value, null, bytes, a list or a plain object is left to cborg itself, its refusals too.
// 2. The room is used again for the next message: what is handed out is a copy.
import { encode as encodeCbor } from 'cborg'

const MAJOR = { uint: 0, negative: 1, bytes: 2, text: 3, list: 4, map: 5 } as const
const FALSE = 0xf4
const TRUE = 0xf5
const NULL = 0xf6
const FLOAT64 = 0xfb
/** A head is one byte of kind and at most eight of number. */
const HEAD_MAX = 9
const ROOM_FIRST = 4 * 1024
/** More than this is not kept for the next message. */
const ROOM_KEPT_MAX = 512 * 1024
/** Up to here a text is looked at character by character: below it the call that copies costs more. */
const SHORT_TEXT = 96
/** UTF-16 units become at most this many bytes each. */
const UTF8_MAX = 3

let room = Buffer.allocUnsafeSlow(ROOM_FIRST)
let end = 0

/** The bytes of `value`, behind `before` bytes that the caller fills. Not for values that hold themselves. */
export function writeCbor(value: unknown, before: number): Buffer {
  end = 0
  ensure(before)
  end = before
  write(value)
  const bytes = Buffer.allocUnsafe(end)
  room.copy(bytes, 0, 0, end)
  if (room.length > ROOM_KEPT_MAX) room = Buffer.allocUnsafeSlow(ROOM_FIRST)
  return bytes
}

function write(value: unknown): void {
  if (typeof value === 'string') writeText(value)
  else if (typeof value === 'number' && Number.isSafeInteger(value)) {
    if (value >= 0) writeHead(MAJOR.uint, value)
    else writeHead(MAJOR.negative, -1 - value)
  } else if (typeof value === 'number' && Math.fround(value) !== value && !Number.isNaN(value))
    writeFloat64(value)
  else if (value === null) writeByte(NULL)
  else if (typeof value === 'boolean') writeByte(value ? TRUE : FALSE)
  else if (value instanceof Uint8Array) writeBytes(value)
  else if (Array.isArray(value)) {
    writeHead(MAJOR.list, value.length)
    for (const item of value) write(item)
  } else if (isPlain(value)) writeMap(value)
  else copyIn(encodeCbor(value, { ignoreUndefinedProperties: true }))
}

function isPlain(value: unknown): value is { [key: string]: unknown } {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

function writeMap(map: { [key: string]: unknown }): void {
  const keys = Object.keys(map).filter((key) => map[key] !== undefined)
  writeHead(MAJOR.map, keys.length)
  for (const key of keys.sort(byBytes)) {
    writeText(key)
    write(map[key])
  }
}

/** RFC 7049's canonical order: the shorter first, then by bytes. */
function byBytes(a: string, b: string): number {
  if (isAscii(a) && isAscii(b)) return a.length - b.length || (a < b ? -1 : 1)
  const [left, right] = [Buffer.from(a), Buffer.from(b)]
  return left.length - right.length || left.compare(right)
}

function isAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false
  return true
}

function writeText(text: string): void {
  ensure(HEAD_MAX + text.length * UTF8_MAX)
  if (text.length <= SHORT_TEXT && isAscii(text)) {
    writeHead(MAJOR.text, text.length)
    for (let at = 0; at < text.length; at++) room[end++] = text.charCodeAt(at)
    return
  }
  writeHead(MAJOR.text, Buffer.byteLength(text))
  end += room.write(text, end)
}

function writeBytes(bytes: Uint8Array): void {
  ensure(HEAD_MAX + bytes.length)
  writeHead(MAJOR.bytes, bytes.length)
  copyIn(bytes)
}

function copyIn(bytes: Uint8Array): void {
  ensure(bytes.length)
  room.set(bytes, end)
  end += bytes.length
}

/** What has no shorter form of the same value. */
function writeFloat64(value: number): void {
  ensure(HEAD_MAX)
  room[end++] = FLOAT64
  end = room.writeDoubleBE(value, end)
}

function writeByte(byte: number): void {
  ensure(1)
  room[end++] = byte
}

/** The shortest form of the number, as deterministic CBOR wants it. */
function writeHead(major: number, number: number): void {
  ensure(HEAD_MAX)
  const kind = major << 5
  if (number < 24) room[end++] = kind | number
  else if (number < 0x100) {
    room[end++] = kind | 24
    room[end++] = number
  } else if (number < 0x10000) {
    room[end++] = kind | 25
    end = room.writeUInt16BE(number, end)
  } else if (number < 0x100000000) {
    room[end++] = kind | 26
    end = room.writeUInt32BE(number, end)
  } else {
    room[end++] = kind | 27
    end = room.writeUInt32BE(Math.floor(number / 0x100000000), end)
    end = room.writeUInt32BE(number % 0x100000000, end)
  }
}

function ensure(bytes: number): void {
  if (end + bytes <= room.length) return
  const larger = Buffer.allocUnsafeSlow(Math.max(2 * room.length, end + bytes))
  room.copy(larger, 0, 0, end)
  room = larger
}

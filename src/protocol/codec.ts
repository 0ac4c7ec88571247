// Messages are CBOR (RFC 8949), a strict subset: definite lengths, shortest integers, text keys without repeats, no
// tags, no undefined, no NaN or Infinity, integers within ±(2^53 − 1). Encoding is deterministic (keys sorted), so
// that golden bytes hold.
//
// Invariants
// 1. `decode` throws nothing but an AppError INVALID with reason MESSAGE_MALFORMED, whatever the bytes.
// 2. Depth and the number of items are bounded before anything is built: nesting cannot exhaust the stack, and a count
//    that the remaining bytes cannot hold is refused at its head.
// 3. No key named `__proto__` gets through: assigning it would give an object another prototype.
import { Tokenizer, Type, decode as decodeCbor } from 'cborg'
import type { DecodeOptions } from 'cborg'
import type { z } from 'zod'
import { AppError, messageOf } from '#lib/error.ts'
import { writeCbor } from '#protocol/cbor-writer.ts'

/** Nesting of arrays and maps: the deepest message of ours has 6. */
export const DEPTH_MAX = 24
/** Values, keys included, in one message: an inventory of a big node has some thousands. */
export const ITEMS_MAX = 100_000
const OPTIONS = {
  strict: true,
  allowIndefinite: false,
  allowUndefined: false,
  allowInfinity: false,
  allowNaN: false,
  allowBigInt: false,
  rejectDuplicateMapKeys: true,
}

/**
 * Properties that are `undefined` are left out. `before` bytes are left free in front, for the caller to fill. Throws on
 * what has no CBOR form: a programmer's error.
 */
export const encode = (value: unknown, before = 0): Buffer => writeCbor(value, before)

/** One value, and nothing after it. Byte strings are copies, as Uint8Array. */
export function decode(bytes: Uint8Array): unknown {
  try {
    // A plain view: `slice` of a Buffer, which cborg would take for a copy, is none.
    const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    return decodeCbor(plain, { ...OPTIONS, tokenizer: new BoundedTokenizer(plain) })
  } catch (error) {
    throw malformed(messageOf(error).replace(/^CBOR decode error: /, ''))
  }
}

/** Decodes and checks against the schema, ignoring unknown keys. `what` names the message in the refusal. */
export function decodeAs<T extends z.ZodType>(
  schema: T,
  bytes: Uint8Array,
  what: string,
): z.output<T> {
  return parseAs(schema, decode(bytes), what)
}

/** Checks a decoded value against the schema; the refusal names the field and never quotes its value. */
export function parseAs<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const where = issue && issue.path.length > 0 ? ` at ${issue.path.join('.')}` : ''
  throw malformed(`${what}${where}: ${issue?.message ?? 'not what was expected'}`)
}

const malformed = (why: string): AppError =>
  new AppError('INVALID', `malformed message: ${why}`, { details: { reason: 'MESSAGE_MALFORMED' } })

type Level = { left: number; keyed: boolean; wantsKey: boolean }

/** cborg's tokenizer, with the bounds of invariants 2 and 3. */
class BoundedTokenizer implements NonNullable<DecodeOptions['tokenizer']> {
  readonly #inner: Tokenizer
  readonly #bytes: Uint8Array
  readonly #levels: Level[] = []
  #items = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#inner = new Tokenizer(bytes, OPTIONS)
  }

  pos(): number {
    return this.#inner.pos()
  }

  done(): boolean {
    return this.#inner.done()
  }

  next(): ReturnType<Tokenizer['next']> {
    const at = this.#inner.pos()
    const token = this.#inner.next()
    if (++this.#items > ITEMS_MAX) throw new Error(`more than ${ITEMS_MAX} values`)
    if (Type.equals(token.type, Type.string)) this.#text(token.value as string, at)
    this.#count()
    const keyed = Type.equals(token.type, Type.map)
    if (keyed || Type.equals(token.type, Type.array)) this.#enter(Number(token.value), keyed)
    return token
  }

  /** The token belongs to the innermost level that still lacks something. */
  #count(): void {
    for (let level = this.#levels.at(-1); level?.left === 0; level = this.#levels.at(-1))
      this.#levels.pop()
    const level = this.#levels.at(-1)
    if (!level) return
    level.left--
    level.wantsKey = level.keyed && !level.wantsKey
  }

  #enter(count: number, keyed: boolean): void {
    const left = keyed ? count * 2 : count
    const rest = this.#bytes.length - this.#inner.pos()
    if (left > rest) throw new Error(`${left} values announced in ${rest} bytes`)
    if (this.#levels.length >= DEPTH_MAX) throw new Error(`nested deeper than ${DEPTH_MAX}`)
    this.#levels.push({ left, keyed, wantsKey: keyed })
  }

  #text(text: string, at: number): void {
    let level = this.#levels.at(-1)
    for (let i = this.#levels.length - 1; level?.left === 0; level = this.#levels[--i]);
    if (level?.wantsKey && text === '__proto__') throw new Error('a key named __proto__')
    // cborg puts U+FFFD where the bytes are no UTF-8; one that was sent encodes back to the same bytes.
    const size = this.#inner.pos() - at
    if (text.includes('\uFFFD') && !endsWith(this.#bytes.subarray(at, at + size), text))
      throw new Error('text that is not UTF-8')
  }
}

function endsWith(encoded: Uint8Array, text: string): boolean {
  const body = Buffer.from(text)
  return body.equals(encoded.subarray(encoded.length - body.length))
}

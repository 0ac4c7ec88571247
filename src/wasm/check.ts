// What the first eight bytes say. Pure and cheap: the engine runs it before it spends a child on the bytes.
import { AppError } from '#lib/error.ts'

export type BinaryKind = 'component' | 'core'

/** Magic and version: less than this cannot be any WASM binary. */
const PREAMBLE_BYTES = 8
const MAGIC = [0x00, 0x61, 0x73, 0x6d]
const CORE_VERSION = [0x01, 0x00, 0x00, 0x00]
const COMPONENT_VERSION = [0x0d, 0x00, 0x01, 0x00]

/** '68 65 6c 6c ("hell")': the bytes in hex, and as text where all of them print. */
export function describeBytes(bytes: Uint8Array): string {
  const hex = [...bytes].map((b) => b.toString(16).padStart(2, '0')).join(' ')
  const printable = bytes.every((b) => b >= 0x20 && b < 0x7f)
  return printable && bytes.length > 0 ? `${hex} ("${String.fromCharCode(...bytes)}")` : hex
}

const startsWith = (bytes: Uint8Array, at: number, expected: number[]): boolean =>
  expected.every((value, i) => bytes[at + i] === value)

/** Tells a component from a core module, or refuses: INVALID, reason TOO_SHORT, BAD_MAGIC or BAD_VERSION. */
export function checkMagic(bytes: Uint8Array): BinaryKind {
  if (bytes.length < PREAMBLE_BYTES)
    throw new AppError(
      'INVALID',
      `the component has ${bytes.length} bytes; a WASM binary has at least ${PREAMBLE_BYTES} and starts with the magic ${describeBytes(Uint8Array.from(MAGIC))}`,
      { details: { reason: 'TOO_SHORT', next: 'send the .wasm file itself' } },
    )
  if (!startsWith(bytes, 0, MAGIC))
    throw new AppError(
      'INVALID',
      `the component starts with ${describeBytes(bytes.subarray(0, 4))}, expected the magic ${describeBytes(Uint8Array.from(MAGIC))}`,
      {
        details: {
          reason: 'BAD_MAGIC',
          next: 'send a compiled .wasm file, not text or an archive',
        },
      },
    )
  if (startsWith(bytes, 4, COMPONENT_VERSION)) return 'component'
  if (startsWith(bytes, 4, CORE_VERSION)) return 'core'
  throw new AppError(
    'INVALID',
    `the WASM version bytes are ${describeBytes(bytes.subarray(4, 8))}; ` +
      `expected ${describeBytes(Uint8Array.from(COMPONENT_VERSION))} (component) or ` +
      `${describeBytes(Uint8Array.from(CORE_VERSION))} (core module)`,
    { details: { reason: 'BAD_VERSION', next: 'build for WASI 0.2 or WASI preview 1' } },
  )
}

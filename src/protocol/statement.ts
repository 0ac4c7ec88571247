// What an engine shows before a node sends any secret: the fleet root key's word that this engine's key is the fleet's.
//
//   CBOR [ root: bytes(32), body: bytes, signature: bytes(64) ]      body = CBOR { v, engineKey, engineId, notBefore, notAfter }
//
// Invariants
// 1. The signature covers a domain line and the exact bytes of `body`: it can be read as nothing else, and is checked
//    before `body` is decoded.
// 2. The verifier says which root it trusts (by fingerprint or key) and whose key the pipe reported; both must match.
import { z } from 'zod'
import type { Instant } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { decodeAs, encode, parseAs, decode } from '#protocol/codec.ts'
import {
  PUBLIC_KEY_BYTES,
  SIGNATURE_BYTES,
  fingerprintOf,
  isPublicKey,
  verifySignature,
  type Identity,
} from '#protocol/identity.ts'

export type EngineStatement = {
  v: 1
  /** The engine's public key, in hex. */
  engineKey: string
  engineId: string
  notBefore: Instant
  notAfter: Instant
}

/** `fingerprint` is a prefix of the SHA-256 of the root key, in hex (32 digits in a token). */
export type RootPin = { fingerprint: string } | { publicKey: string }

const DOMAIN = Buffer.from('clutch engine statement v1\n')
/** A node's clock may be this far off: nodes are other people's machines. */
export const STATEMENT_SKEW_MS = 10 * 60_000
/** A statement is some 250 bytes; whatever is longer is none. */
const STATEMENT_BYTES_MAX = 1024
/** A shorter pin could be met by trying keys. */
const PIN_DIGITS_MIN = 32

const bytesOf = (count: number): z.ZodType<Uint8Array> =>
  z.instanceof(Uint8Array).refine((bytes) => bytes.length === count, `expected ${count} bytes`)
const envelopeSchema = z.tuple([
  bytesOf(PUBLIC_KEY_BYTES),
  z.instanceof(Uint8Array),
  bytesOf(SIGNATURE_BYTES),
])
const statementSchema = z.object({
  v: z.literal(1),
  engineKey: z.string().refine(isPublicKey, 'expected 64 hex digits'),
  engineId: z.string().min(1).max(64),
  notBefore: z.int().nonnegative(),
  notAfter: z.int().nonnegative(),
})

export function signStatement(root: Identity, statement: Omit<EngineStatement, 'v'>): Buffer {
  const body = encode({ v: 1, ...statement })
  const signature = root.sign(Buffer.concat([DOMAIN, body]))
  return encode([Buffer.from(root.publicKey, 'hex'), body, signature])
}

/**
 * The statement, if the pinned root signed it for the key that the pipe reported.
 * Refuses with UNAUTHENTICATED and the reason STATEMENT_MALFORMED, STATEMENT_WRONG_ROOT, STATEMENT_BAD_SIGNATURE,
 * STATEMENT_OTHER_KEY, STATEMENT_NOT_YET_VALID or STATEMENT_EXPIRED.
 */
export function verifyStatement(
  bytes: Uint8Array,
  expected: { root: RootPin; peer: string; now: Instant },
): EngineStatement & { rootKey: string } {
  const [root, body, signature] = open(bytes)
  const rootKey = Buffer.from(root).toString('hex')
  if (!pinned(expected.root, rootKey))
    throw refused(
      'STATEMENT_WRONG_ROOT',
      `the engine belongs to another fleet: its root key is ${fingerprintOf(rootKey, 8)}…, not the one pinned here`,
    )
  if (!verifySignature(rootKey, Buffer.concat([DOMAIN, body]), signature))
    throw refused('STATEMENT_BAD_SIGNATURE', "the engine's statement is not signed by its root key")
  const statement = malformedOf(() => decodeAs(statementSchema, body, 'statement'))
  if (statement.engineKey !== expected.peer)
    throw refused(
      'STATEMENT_OTHER_KEY',
      `the statement is for the engine key ${statement.engineKey.slice(0, 16)}…, but the connection is with ${expected.peer.slice(0, 16)}…`,
    )
  if (expected.now < statement.notBefore - STATEMENT_SKEW_MS)
    throw refused(
      'STATEMENT_NOT_YET_VALID',
      `the engine's statement is valid from ${iso(statement.notBefore)}; this machine says it is ${iso(expected.now)}`,
    )
  if (expected.now > statement.notAfter + STATEMENT_SKEW_MS)
    throw refused(
      'STATEMENT_EXPIRED',
      `the engine's statement ended ${iso(statement.notAfter)}; this machine says it is ${iso(expected.now)}`,
    )
  return { ...statement, rootKey }
}

function open(bytes: Uint8Array): [Uint8Array, Uint8Array, Uint8Array] {
  return malformedOf(() => {
    if (bytes.length > STATEMENT_BYTES_MAX) throw new Error(`${bytes.length} bytes`)
    return parseAs(envelopeSchema, decode(bytes), 'statement')
  })
}

function malformedOf<T>(fn: () => T): T {
  try {
    return fn()
  } catch (cause) {
    throw refused('STATEMENT_MALFORMED', "the engine's statement cannot be read", cause)
  }
}

const pinned = (pin: RootPin, rootKey: string): boolean =>
  'publicKey' in pin
    ? pin.publicKey === rootKey
    : pin.fingerprint.length >= PIN_DIGITS_MIN && fingerprintOf(rootKey).startsWith(pin.fingerprint)

const NEXT: Record<string, string> = {
  STATEMENT_WRONG_ROOT: 'check --server; a token works only with the fleet that made it',
  STATEMENT_NOT_YET_VALID: 'check the clocks of both machines',
  STATEMENT_EXPIRED: 'check the clocks of both machines',
}

function refused(reason: string, message: string, cause?: unknown): AppError {
  const next = NEXT[reason]
  const details = next === undefined ? { reason } : { reason, next }
  return new AppError('UNAUTHENTICATED', message, { cause, details })
}

const iso = (at: Instant): string =>
  Math.abs(at) < 8.64e15 ? new Date(at).toISOString() : `instant ${at}`

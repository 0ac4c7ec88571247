// ND-2, ND-6: the secret that admits a node once. It pins the fleet, so that it is shown to no other.
//
//   clt_n_ (one node) or clt_j_ (joins a pool), then base64url of
//   u8 version = 1 | first 16 bytes of SHA-256(fleet root key) | 32 random bytes | u32 CRC-32 of prefix and all before
//
// Invariants
// 1. A typo is found without a network: length, alphabet and checksum are checked first.
// 2. No message quotes the token or a part of it.
import { crc32 } from 'node:zlib'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import { fingerprintOf } from '#protocol/identity.ts'

export type TokenKind = 'node' | 'join'
export type EnrollToken = {
  kind: TokenKind
  /** First 16 bytes of the SHA-256 of the fleet root key, in hex: what `verifyStatement` pins. */
  fingerprint: string
}

const PREFIXES = { node: 'clt_n_', join: 'clt_j_' } as const
const VERSION = 1
const FINGERPRINT_BYTES = 16
const RANDOM_BYTES = 32
const CRC_BYTES = 4
const TOTAL_BYTES = 1 + FINGERPRINT_BYTES + RANDOM_BYTES + CRC_BYTES
const BODY_CHARS = Math.ceil((TOTAL_BYTES * 4) / 3)
/** Finds tokens in text, for secret scanners and redaction. */
export const TOKEN_PATTERN = /clt_[nj]_[A-Za-z0-9_-]{71}/

/** The token, shown once, and the hash that is kept. */
export function mintToken(
  kind: TokenKind,
  rootKey: string,
  random: Random,
): { token: string; hash: string } {
  const body = Buffer.concat([
    Buffer.of(VERSION),
    Buffer.from(fingerprintOf(rootKey, FINGERPRINT_BYTES), 'hex'),
    random.bytes(RANDOM_BYTES),
  ])
  const sum = Buffer.alloc(CRC_BYTES)
  sum.writeUInt32BE(checksum(PREFIXES[kind], body))
  const token = PREFIXES[kind] + Buffer.concat([body, sum]).toString('base64url')
  return { token, hash: hashToken(token) }
}

/** What a token says. Refuses with INVALID and reason TOKEN_MALFORMED, naming what is wrong, before any dial. */
export function parseToken(text: string): EnrollToken {
  const kind = text.startsWith(PREFIXES.node)
    ? 'node'
    : text.startsWith(PREFIXES.join)
      ? 'join'
      : undefined
  if (kind === undefined) throw malformed('it does not begin with clt_n_ or clt_j_')
  const prefix = PREFIXES[kind]
  const body = text.slice(prefix.length)
  if (body.length !== BODY_CHARS)
    throw malformed(`it has ${text.length} characters, not ${prefix.length + BODY_CHARS}`)
  const wrong = /[^A-Za-z0-9_-]/.exec(body)
  if (wrong)
    throw malformed(
      `character ${prefix.length + wrong.index + 1} is not a letter, digit, '-' or '_'`,
    )
  const bytes = Buffer.from(body, 'base64url')
  const signed = bytes.subarray(0, TOTAL_BYTES - CRC_BYTES)
  if (
    bytes.toString('base64url') !== body ||
    bytes.readUInt32BE(TOTAL_BYTES - CRC_BYTES) !== checksum(prefix, signed)
  )
    throw malformed('its checksum does not match: a character is wrong or two are swapped')
  if (signed[0] !== VERSION)
    throw malformed(`it is of version ${signed[0]}; this program reads version ${VERSION}`)
  return { kind, fingerprint: signed.toString('hex', 1, 1 + FINGERPRINT_BYTES) }
}

/** SHA-256 of the whole token, in hex: the only thing the store keeps of it. */
export const hashToken = (token: string): string => sha256Hex(token)

const checksum = (prefix: string, body: Uint8Array): number => crc32(body, crc32(prefix))

const malformed = (why: string): AppError =>
  new AppError('INVALID', `the token was refused: ${why}`, {
    details: {
      reason: 'TOKEN_MALFORMED',
      next: 'copy the whole token again; if it is lost, revoke the node and enroll it anew',
    },
  })

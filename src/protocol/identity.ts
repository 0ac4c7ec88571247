// One ed25519 key is a peer's identity on both pipes: a self-signed certificate for TLS, a libp2p key for QUIC.
//
// Invariants
// 1. An identity is a pure function of its 32-byte seed: the certificate's serial and dates are constants, because
//    nobody asks them (the key is the identity), and ed25519 signatures are deterministic.
// 2. Only the PKCS#8 text leaves this file as something to store. It is a secret.
import 'reflect-metadata' // tsyringe, inside @peculiar/x509, throws without it
import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto'
import type { KeyObject, X509Certificate } from 'node:crypto'
import { X509CertificateGenerator } from '@peculiar/x509'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'

export type Identity = {
  /** The 32 raw bytes of the public key, in hex. */
  readonly publicKey: string
  /** PKCS#8, a secret: what a key file holds. */
  readonly privateKeyPem: string
  /** Self-signed, for TLS. */
  readonly certificatePem: string
  /** The protobuf that the QUIC addon takes, a secret. */
  readonly libp2pKey: Uint8Array
  sign(bytes: Uint8Array): Buffer
}

export const PUBLIC_KEY_BYTES = 32
export const SIGNATURE_BYTES = 64
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')
const LIBP2P_PREFIX = Buffer.from([0x08, 0x01, 0x12, 0x40])
const CERTIFICATE_DATES = {
  notBefore: new Date(Date.UTC(2020, 0, 1)),
  notAfter: new Date(Date.UTC(9999, 11, 31)),
}

export function createIdentity(random: Random): Promise<Identity> {
  return identityOf(Buffer.concat([PKCS8_PREFIX, random.bytes(32)]))
}

/** The identity in a PKCS#8 PEM text; refuses anything but an ed25519 private key. */
export async function loadIdentity(privateKeyPem: string): Promise<Identity> {
  let key: KeyObject
  try {
    key = createPrivateKey(privateKeyPem)
  } catch {
    throw badKey('it is not a PKCS#8 PEM private key') // the cause could quote the secret: it is left out
  }
  if (key.asymmetricKeyType !== 'ed25519')
    throw badKey(`it is a key of type ${key.asymmetricKeyType ?? 'unknown'}, not ed25519`)
  return identityOf(key.export({ type: 'pkcs8', format: 'der' }))
}

async function identityOf(pkcs8: Buffer): Promise<Identity> {
  const privateKey = createPrivateKey({ key: pkcs8, type: 'pkcs8', format: 'der' })
  const point = createPublicKey(privateKey)
    .export({ type: 'spki', format: 'der' })
    .subarray(SPKI_PREFIX.length)
  const seed = pkcs8.subarray(PKCS8_PREFIX.length)
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: '01',
    name: 'CN=clutch',
    ...CERTIFICATE_DATES,
    signingAlgorithm: { name: 'Ed25519' },
    keys: {
      privateKey: await webSigner(pkcs8),
      publicKey: await webPublicKey(point.toString('hex')),
    },
  })
  return {
    publicKey: point.toString('hex'),
    privateKeyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    certificatePem: `${certificate.toString('pem')}\n`,
    libp2pKey: Buffer.concat([LIBP2P_PREFIX, seed, point]),
    sign: (bytes) => sign(null, bytes, privateKey),
  }
}

/** True when `signature` over `bytes` was made by the key. False for a key that is none. */
export function verifySignature(
  publicKey: string,
  bytes: Uint8Array,
  signature: Uint8Array,
): boolean {
  const key = publicKeyObject(publicKey)
  return (
    key !== undefined && signature.length === SIGNATURE_BYTES && verify(null, bytes, key, signature)
  )
}

/** First `bytes` bytes of the SHA-256 of a public key, in hex. */
export const fingerprintOf = (publicKey: string, bytes = 32): string =>
  createHash('sha256')
    .update(Buffer.from(publicKey, 'hex'))
    .digest('hex')
    .slice(0, bytes * 2)

export const isPublicKey = (hex: string): boolean => /^[0-9a-f]{64}$/.test(hex)

export function publicKeyObject(publicKey: string): KeyObject | undefined {
  if (!isPublicKey(publicKey)) return undefined
  const key = Buffer.concat([SPKI_PREFIX, Buffer.from(publicKey, 'hex')])
  return createPublicKey({ key, type: 'spki', format: 'der' })
}

const webSigner = (pkcs8: Uint8Array): Promise<CryptoKey> =>
  crypto.subtle.importKey('pkcs8', new Uint8Array(pkcs8), 'Ed25519', false, ['sign'])

/** The signing key as WebCrypto wants it. */
export const webPrivateKey = (identity: Identity): Promise<CryptoKey> =>
  webSigner(createPrivateKey(identity.privateKeyPem).export({ type: 'pkcs8', format: 'der' }))

/** The key as WebCrypto wants it; rejects what is no key. */
export const webPublicKey = (publicKey: string): Promise<CryptoKey> =>
  crypto.subtle.importKey('raw', new Uint8Array(Buffer.from(publicKey, 'hex')), 'Ed25519', true, [
    'verify',
  ])

/** The raw ed25519 point of a certificate, in hex; undefined for any other kind of key. */
export function publicKeyOfCertificate(
  certificate: X509Certificate | undefined,
): string | undefined {
  if (!certificate) return undefined
  const key = certificate.publicKey
  if (key.asymmetricKeyType !== 'ed25519') return undefined
  return key.export({ type: 'spki', format: 'der' }).subarray(SPKI_PREFIX.length).toString('hex')
}

const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'
const PEER_ID_PREFIX = '002408011220' // identity multihash of a protobuf ed25519 public key
const PEER_ID = /^12D3KooW[1-9A-HJ-NP-Za-km-z]{44}$/ // how base58 of that prefix and 32 bytes always looks

/** '12D3Koo…' → the raw ed25519 point in hex; undefined for any other peer id. */
export function publicKeyOfPeerId(peerId: string): string | undefined {
  if (!PEER_ID.test(peerId)) return undefined
  let number = 0n
  for (const letter of peerId) number = number * 58n + BigInt(BASE58.indexOf(letter))
  const hex = number.toString(16).padStart(76, '0')
  return hex.startsWith(PEER_ID_PREFIX) && hex.length === 76
    ? hex.slice(PEER_ID_PREFIX.length)
    : undefined
}

const badKey = (why: string): AppError =>
  new AppError('INVALID', `the private key was refused: ${why}`, {
    details: {
      reason: 'KEY_MALFORMED',
      next: 'restore the key file from a backup, or enroll again',
    },
  })

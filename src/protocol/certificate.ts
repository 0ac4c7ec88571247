// ND-5: a node's certificate. The fleet's authority says for 24 hours: this key is that node of that org, in that
// generation of its identity. On TLS it is the client certificate; on QUIC it travels in REGISTER.
//
// Invariants
// 1. Everything said stands in one SPIFFE id, `spiffe://clutch/org/<org>/node/<node>/gen/<n>`, the only name in it.
// 2. A certificate is checked against the authority's keys alone: no chain, no revocation list. Revoking is raising the
//    generation, which the session layer compares.
import 'reflect-metadata' // tsyringe, inside @peculiar/x509, throws without it
import { X509Certificate } from 'node:crypto'
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'
import { CERTIFICATE_MS } from '#core/node/limits.ts'
import type { Instant } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import {
  publicKeyObject,
  publicKeyOfCertificate,
  webPrivateKey,
  webPublicKey,
  type Identity,
} from '#protocol/identity.ts'

export type NodeIdentity = {
  orgId: string
  /** The record's id (`node_…`), not the name its org gave it. */
  nodeId: string
  /** Identity generation. */
  generation: number
}

export type NodeCertificate = NodeIdentity & {
  /** The node's public key, in hex. */
  publicKey: string
  notBefore: Instant
  notAfter: Instant
}

export type IssuedCertificate = { der: Buffer; pem: string; notAfter: Instant }

/** Begins this long before it is issued: clocks of other people's machines. */
const CERTIFICATE_BACKDATE_MS = 10 * 60_000
/** One of ours is some 400 bytes. */
const CERTIFICATE_BYTES_MAX = 4 * 1024
const SERIAL_BYTES = 16
const ID_PART = /^[A-Za-z0-9_-]{1,64}$/
const SPIFFE =
  /^URI:spiffe:\/\/clutch\/org\/([A-Za-z0-9_-]{1,64})\/node\/([A-Za-z0-9_-]{1,64})\/gen\/(0|[1-9][0-9]{0,9})$/

export type IssueRequest = NodeIdentity & {
  /** The authority's key. */
  authority: Identity
  /** The node's public key, in hex, as the pipe proved it. */
  publicKey: string
  now: Instant
  random: Random
}

/** A certificate for 24 hours. Throws on an org or node id that cannot stand in a SPIFFE id: a programmer's error. */
export async function issueCertificate(request: IssueRequest): Promise<IssuedCertificate> {
  const { authority, publicKey, orgId, nodeId, generation, now, random } = request
  if (!ID_PART.test(orgId) || !ID_PART.test(nodeId) || !Number.isSafeInteger(generation))
    throw new Error(`no SPIFFE id from org '${orgId}', node '${nodeId}', generation ${generation}`)
  const notAfter = Math.floor((now + CERTIFICATE_MS) / 1000) * 1000 // X.509 knows whole seconds
  const serial = random.bytes(SERIAL_BYTES)
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40 // positive, and of full length
  const certificate = await X509CertificateGenerator.create({
    serialNumber: Buffer.from(serial).toString('hex'),
    subject: `CN=${nodeId}`,
    issuer: 'CN=clutch fleet authority',
    notBefore: new Date(now - CERTIFICATE_BACKDATE_MS),
    notAfter: new Date(notAfter),
    signingAlgorithm: { name: 'Ed25519' },
    publicKey: await webPublicKey(publicKey),
    signingKey: await webPrivateKey(authority),
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.clientAuth]),
      new SubjectAlternativeNameExtension([
        { type: 'url', value: `spiffe://clutch/org/${orgId}/node/${nodeId}/gen/${generation}` },
      ]),
    ],
  })
  const der = Buffer.from(certificate.rawData)
  return { der, pem: `${certificate.toString('pem')}\n`, notAfter }
}

/**
 * What a certificate says, if one of the authority's keys (hex, newest first) signed it and it is valid now.
 * Refuses with UNAUTHENTICATED and the reason CERTIFICATE_MALFORMED, CERTIFICATE_WRONG_AUTHORITY,
 * CERTIFICATE_OTHER_KEY (`peer` is given and is another), CERTIFICATE_NOT_YET_VALID or CERTIFICATE_EXPIRED.
 */
export function verifyCertificate(
  der: Uint8Array,
  expected: { authorities: readonly string[]; peer?: string; now: Instant },
): NodeCertificate {
  const certificate = read(der)
  const signed = expected.authorities.some((key) => {
    const authority = publicKeyObject(key)
    return authority !== undefined && verifies(certificate, authority)
  })
  if (!signed)
    throw refused('CERTIFICATE_WRONG_AUTHORITY', 'the certificate is not signed by this fleet')
  const said = contentOf(certificate)
  if (expected.peer !== undefined && said.publicKey !== expected.peer)
    throw refused(
      'CERTIFICATE_OTHER_KEY',
      `the certificate is for the key ${said.publicKey.slice(0, 16)}…, but the connection is with ${expected.peer.slice(0, 16)}…`,
    )
  if (expected.now < said.notBefore)
    throw refused('CERTIFICATE_NOT_YET_VALID', `the certificate begins ${iso(said.notBefore)}`)
  if (expected.now >= said.notAfter)
    throw refused('CERTIFICATE_EXPIRED', `the certificate ended ${iso(said.notAfter)}`)
  return said
}

/** What a certificate says, unverified: for a node that reads its own. */
export function parseCertificate(der: Uint8Array): NodeCertificate {
  return contentOf(read(der))
}

function read(der: Uint8Array): X509Certificate {
  if (der.length > CERTIFICATE_BYTES_MAX)
    throw malformed(`${der.length} bytes, where ${CERTIFICATE_BYTES_MAX} are allowed`)
  if (der[0] !== 0x30) throw malformed('it is not DER') // PEM would be read too, and anything after it ignored
  try {
    const certificate = new X509Certificate(der)
    if (certificate.raw.length === der.length) return certificate
  } catch {
    // below
  }
  throw malformed('it is not one X.509 certificate')
}

function verifies(
  certificate: X509Certificate,
  key: NonNullable<ReturnType<typeof publicKeyObject>>,
): boolean {
  try {
    return certificate.verify(key)
  } catch {
    return false // another algorithm than the key's
  }
}

function contentOf(certificate: X509Certificate): NodeCertificate {
  const [, orgId, nodeId, generation] = SPIFFE.exec(certificate.subjectAltName ?? '') ?? []
  if (orgId === undefined || nodeId === undefined)
    throw malformed('its one name is not spiffe://clutch/org/…/node/…/gen/…')
  const publicKey = publicKeyOfKnown(certificate)
  if (publicKey === undefined) throw malformed('its key is not ed25519')
  if (certificate.ca || !certificate.keyUsage?.includes(CLIENT_AUTH))
    throw malformed('it is not a client certificate')
  return {
    orgId,
    nodeId,
    generation: Number(generation),
    publicKey,
    notBefore: certificate.validFromDate.getTime(),
    notAfter: certificate.validToDate.getTime(),
  }
}

const CLIENT_AUTH: string = ExtendedKeyUsage.clientAuth

function publicKeyOfKnown(certificate: X509Certificate): string | undefined {
  try {
    return publicKeyOfCertificate(certificate)
  } catch {
    return undefined // a key that OpenSSL does not know
  }
}

const malformed = (why: string): AppError =>
  refused('CERTIFICATE_MALFORMED', `the certificate cannot be used: ${why}`)

const refused = (reason: string, message: string): AppError =>
  new AppError('UNAUTHENTICATED', message, { details: { reason } })

const iso = (at: Instant): string => new Date(at).toISOString()

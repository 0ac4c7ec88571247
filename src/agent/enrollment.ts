// Who this agent is towards the fleet: what it proves at REGISTER, whom it trusts, and what a welcome teaches it.
//
// Invariants
// 1. A token is checked for typing errors before any dial, sent only to an engine of the fleet that it pins, and not
//    kept: after the first welcome its hash is enough to know that it was used.
// 2. What was learned is on disk before the session goes on.
import type { Random } from '#lib/random.ts'
import { AppError } from '#lib/error.ts'
import { hashToken, parseToken } from '#protocol/enroll-token.ts'
import type { Identity } from '#protocol/identity.ts'
import type { Register, Welcome } from '#protocol/messages.ts'
import type { RootPin } from '#protocol/statement.ts'
import type { Journal, Membership } from '#agent/journal.ts'
import { keyFileFor, loadKeyFile, openKeyFile, removeOtherKeys } from '#agent/key-files.ts'

export type Proof = Pick<
  Register,
  'token' | 'orgId' | 'certificate' | 'identityGeneration' | 'epochSeen' | 'generationSeen'
>

export type Enrollment = {
  identity: Identity
  pin(): RootPin
  proof(): Proof
  certificatePem(): string | undefined
  welcomed(welcome: Welcome): void
  renewed(certificate: Uint8Array): void
}

export type EnrollmentDeps = {
  dataDir: string
  journal: Journal
  random: Random
  nodeId: string
  /** The token's text, where one was given. */
  token: string | undefined
  /** The file that should have held it, where one was named. */
  tokenFile?: string | undefined
}

/** Errors: INVALID `TOKEN_MALFORMED`, INVALID `TOKEN_MISSING`, INVALID_STATE `KEY_MISSING`. */
export async function openEnrollment(deps: EnrollmentDeps): Promise<Enrollment> {
  const { dataDir, journal, random, token } = deps
  const known = journal.membership
  const fingerprint = token === undefined ? undefined : parseToken(token).fingerprint
  const hash = token === undefined ? undefined : hashToken(token)
  if (known && (hash === undefined || hash === known.tokenHash)) {
    const identity = await loadKeyFile(dataDir, known.keyFile)
    if (!identity) throw keyMissing(dataDir, known)
    return enrollmentOf(deps, identity, undefined)
  }
  if (token === undefined || hash === undefined || fingerprint === undefined)
    throw new AppError(
      'INVALID',
      `this machine is not enrolled yet: ${dataDir} holds no identity${noToken(deps.tokenFile)}`,
      {
        details: {
          reason: 'TOKEN_MISSING',
          next: `enroll it (ccp nodes enroll ${deps.nodeId} …) and give the token by --token-file, CLUTCH_TOKEN or --token`,
        },
      },
    )
  const keyFile = keyFileFor(hash)
  const identity = await openKeyFile(dataDir, keyFile, random)
  return enrollmentOf(deps, identity, { token, hash, fingerprint, keyFile })
}

const noToken = (file: string | undefined): string =>
  file === undefined ? '' : `, and the token file ${file} is not there or empty`

type Fresh = { token: string; hash: string; fingerprint: string; keyFile: string }

function enrollmentOf(
  { dataDir, journal, nodeId }: EnrollmentDeps,
  identity: Identity,
  given: Fresh | undefined,
): Enrollment {
  let fresh = given
  return {
    identity,
    pin: () =>
      fresh
        ? { fingerprint: fresh.fingerprint }
        : { publicKey: journal.membership?.fleetRoot ?? '' },
    proof: () => proofOf(fresh, journal.membership),
    certificatePem: () => {
      const known = fresh ? undefined : journal.membership
      return known && pemOf(known.certificate)
    },
    welcomed(welcome) {
      const known = journal.membership
      const membership = {
        nodeRecordId: welcome.node.id,
        orgId: welcome.node.orgId,
        nodeId,
        fleetRoot: Buffer.from(welcome.fleetRoot).toString('hex'),
        identityGeneration: welcome.identityGeneration,
        epoch: welcome.epoch,
        generation: fresh ? 0 : (known?.generation ?? 0),
        tokenHash: fresh?.hash ?? known?.tokenHash ?? '',
        keyFile: fresh?.keyFile ?? known?.keyFile ?? '',
        certificate: welcome.certificate,
      }
      journal.saveMembership(membership)
      fresh = undefined
      // One that stays behind opens nothing any more, and goes at the next welcome.
      removeOtherKeys(dataDir, membership.keyFile).catch(() => undefined)
    },
    renewed: (certificate) => journal.saveCertificate(certificate),
  }
}

function proofOf(fresh: Fresh | undefined, membership: Membership | undefined): Proof {
  const org = membership ? { orgId: membership.orgId } : {}
  // A new token may be another record's: what was seen of the old one says nothing about it.
  if (fresh || !membership)
    return { token: fresh?.token, ...org, identityGeneration: 0, epochSeen: 0, generationSeen: 0 }
  return {
    ...org,
    certificate: membership.certificate,
    identityGeneration: membership.identityGeneration,
    epochSeen: membership.epoch,
    generationSeen: membership.generation,
  }
}

function pemOf(der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
}

const keyMissing = (dataDir: string, { nodeId, keyFile }: Membership): AppError =>
  new AppError('INVALID_STATE', `the key of node ${nodeId} is gone: ${dataDir}/keys/${keyFile}`, {
    details: {
      reason: 'KEY_MISSING',
      next: `restore it, or run: ccp nodes revoke-identity ${nodeId}, and start the agent with the new token`,
    },
  })

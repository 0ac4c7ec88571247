// What the gateway signs with: its own key, the fleet root's word for it, and the certificates of nodes.
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import {
  issueCertificate,
  verifyCertificate,
  type NodeCertificate,
  type NodeIdentity,
} from '#protocol/certificate.ts'
import { fingerprintOf, loadIdentity, type Identity } from '#protocol/identity.ts'
import { signStatement } from '#protocol/statement.ts'
import type { Keyring } from '#store/keyring.ts'

/** A statement is made anew for every connection; a copied one is of use for this long, and only with the engine's key. */
const STATEMENT_MS = 3_600_000

export type GatewayKeys = {
  identity: Identity
  /** The fleet root's public key, 32 bytes. */
  fleetRoot: Uint8Array
  /** Whether a token's fingerprint is this fleet's. */
  isOurs(fingerprint: string): boolean
  statement(): Uint8Array
  certify(node: NodeIdentity & { publicKey: string }): Promise<Uint8Array>
  /** What a certificate of ours says; undefined when it is not ours, another key's, or no longer valid. */
  read(certificate: Uint8Array, peer: string): NodeCertificate | undefined
}

export async function openGatewayKeys(
  keyring: Keyring,
  engineId: string,
  { clock, random }: { clock: Clock; random: Random },
): Promise<GatewayKeys> {
  const [identity, root, authority] = await Promise.all([
    keyring.engineKey(engineId).then((key) => loadIdentity(key.pem())),
    loadIdentity(keyring.fleetRoot.current.pem()),
    loadIdentity(keyring.ca.current.pem()),
  ])
  const authorities = await Promise.all(
    keyring.ca.all.map(async (key) => (await loadIdentity(key.pem())).publicKey),
  )
  return {
    identity,
    fleetRoot: Buffer.from(root.publicKey, 'hex'),
    isOurs: (fingerprint) => fingerprintOf(root.publicKey).startsWith(fingerprint),
    statement: () =>
      signStatement(root, {
        engineKey: identity.publicKey,
        engineId,
        notBefore: clock.now(),
        notAfter: clock.now() + STATEMENT_MS,
      }),
    certify: async (node) =>
      (await issueCertificate({ ...node, authority, now: clock.now(), random })).der,
    read(certificate, peer) {
      try {
        return verifyCertificate(certificate, { authorities, peer, now: clock.now() })
      } catch (error) {
        if (error instanceof AppError) return undefined
        throw error
      }
    },
  }
}

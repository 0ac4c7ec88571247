// What a node proves at REGISTER: a token, known by its hash alone, and the key that the first REGISTER bound to it.
// 1. One row an identity generation. A key is bound once and never replaced: another machine needs a new generation.
// 2. Who reads a credential to admit a node holds the node row's lock, so that two first REGISTERs cannot both bind.
import type { Instant } from '#lib/clock.ts'
import type { Tx } from '#store/connect.ts'

/** A credential with what admission asks of its node. Keys are the 32 raw bytes, in hex. */
export type Candidate = {
  /** The record's id, `node_…`. */
  nodeRecordId: string
  orgId: string
  /** The name that the machine presents. */
  nodeId: string
  revoked: boolean
  /** The credential's own generation, and the newest that the node has. */
  identityGeneration: number
  currentIdentityGeneration: number
  publicKey: string | undefined
}

/** Adds the credential of a new identity generation; its key is bound by the first REGISTER. */
export async function addCredential(
  tx: Tx,
  row: { nodeRecordId: string; identityGeneration: number; tokenHash: Uint8Array; now: Instant },
): Promise<void> {
  await tx
    .insertInto('nodeCredentials')
    .values({
      nodeId: row.nodeRecordId,
      identityGeneration: row.identityGeneration,
      tokenHash: Buffer.from(row.tokenHash),
      publicKey: null,
      createdAt: new Date(row.now),
      boundAt: null,
    })
    .execute()
}

/** The credential that this token opens, its node's row locked. */
export async function credentialByToken(
  tx: Tx,
  tokenHash: Uint8Array,
): Promise<Candidate | undefined> {
  const row = await candidates(tx)
    .where('nodeCredentials.tokenHash', '=', Buffer.from(tokenHash))
    .executeTakeFirst()
  return row && toCandidate(row)
}

/** The newest credential that this key was bound to, its node's row locked: of a node not revoked where there is one. */
export async function credentialByKey(tx: Tx, publicKey: string): Promise<Candidate | undefined> {
  const row = await candidates(tx)
    .where('nodeCredentials.publicKey', '=', Buffer.from(publicKey, 'hex'))
    .orderBy('nodes.revokedAt', (order) => order.desc().nullsFirst())
    .orderBy('nodeCredentials.createdAt', 'desc')
    .orderBy('nodeCredentials.identityGeneration', 'desc')
    .limit(1)
    .executeTakeFirst()
  return row && toCandidate(row)
}

export async function bindKey(
  tx: Tx,
  row: { nodeRecordId: string; identityGeneration: number; publicKey: string; now: Instant },
): Promise<void> {
  await tx
    .updateTable('nodeCredentials')
    .set({ publicKey: Buffer.from(row.publicKey, 'hex'), boundAt: new Date(row.now) })
    .where('nodeId', '=', row.nodeRecordId)
    .where('identityGeneration', '=', row.identityGeneration)
    .where('publicKey', 'is', null)
    .execute()
}

const candidates = (tx: Tx) =>
  tx
    .selectFrom('nodeCredentials')
    .innerJoin('nodes', 'nodes.id', 'nodeCredentials.nodeId')
    .select([
      'nodes.id as nodeRecordId',
      'nodes.orgId',
      'nodes.nodeId',
      'nodes.revokedAt',
      'nodes.identityGeneration as currentIdentityGeneration',
      'nodeCredentials.identityGeneration',
      'nodeCredentials.publicKey',
    ])
    .forUpdate()

type Row = Awaited<ReturnType<ReturnType<typeof candidates>['executeTakeFirstOrThrow']>>

const toCandidate = ({ revokedAt, publicKey, ...row }: Row): Candidate => ({
  ...row,
  revoked: revokedAt !== null,
  publicKey: publicKey?.toString('hex'),
})

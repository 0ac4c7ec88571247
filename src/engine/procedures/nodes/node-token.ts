// A node's one-time token and its credential: made together with what it is for, shown once (ND-1, D40).
import type { TxCall } from '#engine/call.ts'
import { mintToken } from '#protocol/enroll-token.ts'
import { addCredential } from '#store/credentials.ts'

export const TOKEN_NOTICE =
  'TOKEN_ALREADY_SHOWN: the token was shown by the first call with this Idempotency-Key. If it is lost, revoke the identity of the node to get a new one'

/** Stores the credential of an identity generation and answers its token. */
export async function giveToken(
  call: TxCall,
  node: { id: string; identityGeneration: number },
): Promise<string> {
  const { engine, tx } = call
  const root = engine.keyring.fleetRoot.current
  const { token, hash } = mintToken('node', root.publicKeyHex, engine.random)
  await addCredential(tx, {
    nodeRecordId: node.id,
    identityGeneration: node.identityGeneration,
    tokenHash: Buffer.from(hash, 'hex'),
    now: engine.clock.now(),
  })
  return token
}

// Who may register (ND-4): a pure decision over the credential that was found and what the machine presented.
import type { Candidate } from '#store/credentials.ts'

export type RefusalReason =
  | 'VERSION'
  | 'TOKEN_MALFORMED'
  | 'TOKEN_UNKNOWN'
  | 'TOKEN_OTHER_FLEET'
  | 'KEY_UNKNOWN'
  | 'KEY_MISMATCH'
  | 'NODE_MISMATCH'
  | 'ORG_MISMATCH'
  | 'NODE_REVOKED'
  | 'IDENTITY_REVOKED'
  | 'MESSAGE_MALFORMED'
  | 'TOO_LATE'
  | 'TICKET_UNKNOWN'
  | 'BUSY'
  | 'store_unavailable'
  | 'INTERNAL'

/** `retry: false`: nothing changes until somebody acts. The message says what was wrong and what would be right. */
export type Refusal = { reason: RefusalReason; message: string; retry: boolean }

/** What the machine presented, once its key was proven by the pipe. */
export type Presented = {
  nodeId: string
  publicKey: string
  by: 'token' | 'key'
  /** What the node believes; asked only when it comes by its key. */
  identityGeneration: number
  /** The org that its folder belongs to; undefined before its first welcome. */
  orgId: string | undefined
  /** What its certificate says, where it showed one of ours for this key. `nodeId` is the record's id. */
  certificate: { orgId: string; nodeId: string; generation: number } | undefined
}

export type Verdict = { admit: true; bind: boolean } | { admit: false; refusal: Refusal }

export const refusal = (reason: RefusalReason, message: string, retry = false): Refusal => ({
  reason,
  message,
  retry,
})

/** A credential was looked up by the token's hash or by the key; `undefined`: there is none. */
export function judge(candidate: Candidate | undefined, presented: Presented): Verdict {
  if (!candidate) return refuse(unknown(presented))
  const { nodeId, currentIdentityGeneration: current } = candidate
  if (candidate.revoked)
    return refuse(
      refusal(
        'NODE_REVOKED',
        `node ${nodeId} was revoked; enroll it again and start it with the new token`,
      ),
    )
  if (presented.nodeId !== nodeId)
    return refuse(
      refusal(
        'NODE_MISMATCH',
        `--node says ${presented.nodeId}, but this credential is of node ${nodeId}: start it with --node ${nodeId}, or enroll ${presented.nodeId}`,
      ),
    )
  const { certificate } = presented
  const orgIds = [presented.orgId, certificate?.orgId]
  if (orgIds.some((orgId) => orgId !== undefined && orgId !== candidate.orgId))
    return refuse(
      refusal(
        'ORG_MISMATCH',
        `this machine's data folder belongs to another organization than node ${nodeId}: give it a data folder of its own with --data-dir`,
      ),
    )
  const generations = [candidate.identityGeneration]
  if (presented.by === 'key') generations.push(presented.identityGeneration)
  if (certificate?.nodeId === candidate.nodeRecordId) generations.push(certificate.generation)
  if (generations.some((generation) => generation !== current))
    return refuse(
      refusal(
        'IDENTITY_REVOKED',
        `the identity of node ${nodeId} was replaced (it is generation ${current} now): start it with the token that revoke-identity printed`,
      ),
    )
  if (candidate.publicKey !== undefined && candidate.publicKey !== presented.publicKey)
    return refuse(
      refusal(
        'KEY_MISMATCH',
        `node ${nodeId} is bound to another machine's key. If this is the right machine and its data folder was lost, run: ccp nodes revoke-identity ${nodeId}`,
      ),
    )
  return { admit: true, bind: candidate.publicKey === undefined }
}

const refuse = (why: Refusal): Verdict => ({ admit: false, refusal: why })

const unknown = ({ by, nodeId }: Presented): Refusal =>
  by === 'token'
    ? refusal(
        'TOKEN_UNKNOWN',
        'no node has this token: copy it again from enroll, or revoke the node and enroll it anew',
      )
    : refusal(
        'KEY_UNKNOWN',
        `no node is bound to this machine's key: enroll ${nodeId} and start it with --token-file`,
      )

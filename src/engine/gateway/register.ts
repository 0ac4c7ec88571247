// REGISTER (ND-4, ND-5, D36, D39): one transaction from the credential to the open session.
//
// Invariants
// 1. All of it or nothing: the key is bound, the epoch taken, the pending tier applied and the session opened together.
// 2. Epoch and generation jump past whatever the node has seen: an engine restored from an old database hands out
//    nothing twice.
// 3. A refusal writes nothing but its event.
import type { Clock, Instant } from '#lib/clock.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import { ACCEPTANCE_DEADLINE_MS } from '#core/node/limits.ts'
import { effectiveTier, type TrustTier } from '#core/node/node.ts'
import type { NodeCertificate } from '#protocol/certificate.ts'
import { hashToken } from '#protocol/enroll-token.ts'
import type { Register } from '#protocol/messages.ts'
import type { Pipe } from '#protocol/pipe.ts'
import { addCommand, openCommands } from '#store/commands.ts'
import { transaction, type Store, type Tx } from '#store/connect.ts'
import { bindKey, credentialByKey, credentialByToken, type Candidate } from '#store/credentials.ts'
import { recordNodeEvents } from '#store/sessions-events.ts'
import { acceptNode, beginSession, nodeAtRegister, type NodeAtRegister } from '#store/sessions.ts'
import { judge, refusal, type Presented, type Refusal } from '#engine/gateway/admit.ts'
import type { GatewayKeys } from '#engine/gateway/gateway-keys.ts'
import type { SessionFacts } from '#engine/gateway/node-session.ts'

export type RegisterDeps = {
  db: Store
  clock: Clock
  random: Random
  engineId: string
  keys: GatewayKeys
  /** Whether this mismatch is worth an event: a machine that keeps trying must not fill the audit trail. */
  tellMismatch(candidate: Candidate): boolean
}

export type Registered =
  | {
      ok: true
      facts: SessionFacts
      generation: number
      /** Whether commands wait for the node. */
      asked: boolean
      /** The certificate that the node showed and that says the same as a new one would. */
      held: { der: Uint8Array; notAfter: Instant } | undefined
    }
  | { ok: false; refusal: Refusal }

/** What a node may claim to have seen; far beyond any honest number, and far below where a double stops counting. */
const SEEN_MAX = 2 ** 48

export async function register(
  deps: RegisterDeps,
  message: Register,
  pipe: Pipe,
): Promise<Registered> {
  if (message.epochSeen > SEEN_MAX || message.generationSeen > SEEN_MAX)
    return {
      ok: false,
      refusal: refusal(
        'MESSAGE_MALFORMED',
        `the node says it has seen epoch ${message.epochSeen} and generation ${message.generationSeen}: the most is ${SEEN_MAX}`,
      ),
    }
  const shown = message.certificate ?? pipe.certificate
  const certificate = shown && deps.keys.read(shown, pipe.peer)
  const presented = presentedBy(message, pipe, certificate)
  const outcome = await transaction(deps.db, async (tx) => {
    const candidate =
      message.token === undefined
        ? await credentialByKey(tx, pipe.peer)
        : await credentialByToken(tx, Buffer.from(hashToken(message.token), 'hex'))
    const verdict = judge(candidate, presented)
    if (!verdict.admit) {
      if (candidate && verdict.refusal.reason === 'KEY_MISMATCH' && deps.tellMismatch(candidate))
        await recordNodeEvents(tx, [mismatch(candidate, pipe)], at(deps))
      return verdict
    }
    if (!candidate) throw new Error('invariant broken: nobody was admitted')
    if (verdict.bind)
      await bindKey(tx, { ...candidate, publicKey: pipe.peer, now: deps.clock.now() })
    return admit({ deps, tx, message, pipe }, candidate, verdict.bind)
  })
  if (!outcome.admit) return { ok: false, refusal: outcome.refusal }
  const { facts, generation, asked } = outcome
  const same =
    certificate?.nodeId === facts.nodeRecordId &&
    certificate.generation === facts.identityGeneration
  const held = shown && same ? { der: shown, notAfter: certificate.notAfter } : undefined
  return { ok: true, facts, generation, asked, held }
}

type Admitted = { admit: true; facts: SessionFacts; generation: number; asked: boolean }

type Admission = { deps: RegisterDeps; tx: Tx; message: Register; pipe: Pipe }

async function admit(
  admission: Admission,
  candidate: Candidate,
  first: boolean,
): Promise<Admitted> {
  const { deps, tx, message, pipe } = admission
  const { nodeRecordId, orgId, nodeId, identityGeneration } = candidate
  const now = deps.clock.now()
  const node = await nodeAtRegister(tx, nodeRecordId)
  const epoch = Math.max(node.epoch, message.epochSeen) + 1
  const trustTier = node.pendingTrustTier ?? node.trustTier
  const runtimes = offered(message, trustTier)
  let generation =
    message.generationSeen > node.generation ? message.generationSeen + 1 : node.generation
  await beginSession(tx, {
    nodeRecordId,
    epoch,
    engineId: deps.engineId,
    transport: pipe.transport,
    remoteAddress: pipe.remote.host,
    now,
    generation,
    trustTier,
    manifest: { ...message.manifest, runtimes },
    community: message.community,
    jailer: message.jailer,
    agentVersion: message.agentVersion,
  })
  const accepted = await beginAcceptance(admission, candidate, { node, runtimes })
  generation = accepted ?? generation
  await recordNodeEvents(
    tx,
    [
      {
        kind: 'node.registered',
        orgId,
        nodeRecordId,
        actor: { kind: 'node', id: nodeId },
        ip: pipe.remote.host,
        data: { epoch, transport: pipe.transport, first, engine: deps.engineId },
      },
    ],
    at(deps),
  )
  return {
    admit: true,
    facts: { nodeRecordId, orgId, nodeId, epoch, identityGeneration, trustTier },
    generation,
    asked: node.provisionState === 'adopting' && accepted === undefined,
  }
}

/**
 * ND-24, as far as `diag.wasm`: the first REGISTER of a node in `adopting` gets the check of each runtime that has one,
 * exactly once. A node that offers none of those is accepted as it is. Answers the generation then wanted.
 */
async function beginAcceptance(
  { deps, tx }: Admission,
  { nodeRecordId, orgId }: Candidate,
  { node, runtimes }: { node: NodeAtRegister; runtimes: readonly string[] },
): Promise<number | undefined> {
  if (node.provisionState !== 'adopting') return undefined
  const now = deps.clock.now()
  if (!runtimes.includes('wasm')) return (await acceptNode(tx, { nodeRecordId, now }))?.generation
  if ((await openCommands(tx, nodeRecordId)).length > 0) return undefined
  await addCommand(tx, {
    id: newId('cmd', now, deps.random),
    orgId,
    nodeRecordId,
    kind: 'diag.wasm',
    deadlineMs: ACCEPTANCE_DEADLINE_MS,
    now,
  })
  return undefined
}

/** D39, 000-25: a community node without a jailer offers no machines, whatever its agent says. */
function offered(message: Register, trustTier: TrustTier): string[] {
  const tier = effectiveTier(trustTier, message.community)
  const runtimes = [...new Set(message.manifest.runtimes)]
  return tier === 'community' && !message.jailer
    ? runtimes.filter((runtime) => runtime !== 'microvm')
    : runtimes
}

function presentedBy(
  message: Register,
  pipe: Pipe,
  certificate: NodeCertificate | undefined,
): Presented {
  return {
    nodeId: message.nodeId,
    publicKey: pipe.peer,
    by: message.token === undefined ? 'key' : 'token',
    identityGeneration: message.identityGeneration,
    orgId: message.orgId,
    certificate,
  }
}

const mismatch = (candidate: Candidate, pipe: Pipe) =>
  ({
    kind: 'node.key-mismatch',
    orgId: candidate.orgId,
    nodeRecordId: candidate.nodeRecordId,
    actor: { kind: 'node', id: candidate.nodeId },
    ip: pipe.remote.host,
    data: { presented: pipe.peer.slice(0, 16), bound: candidate.publicKey?.slice(0, 16) ?? null },
  }) as const

const at = ({ clock, random }: RegisterDeps): { now: number; random: Random } => ({
  now: clock.now(),
  random,
})

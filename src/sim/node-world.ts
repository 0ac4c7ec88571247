// A gateway with its store and keys, and nodes enrolled straight into the rows: what tests of sessions stand on.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TrustTier } from '#core/node/node.ts'
import { systemClock, type Clock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { newId } from '#lib/id.ts'
import { systemRandom } from '#lib/random.ts'
import { mintToken } from '#protocol/enroll-token.ts'
import type { Store } from '#store/connect.ts'
import { transaction } from '#store/connect.ts'
import { addCredential } from '#store/credentials.ts'
import { openKeyring, type Keyring } from '#store/keyring.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { openGatewayKeys } from '#engine/gateway/gateway-keys.ts'
import {
  startGateway,
  type GatewayConfig,
  type RunningGateway,
} from '#engine/gateway/start-gateway.ts'

export type NodeWorld = {
  db: Store
  keyring: Keyring
  clock: Clock
  orgId: string
  gateway(options?: GatewayOptions): Promise<RunningGateway>
  enroll(nodeId: string, options?: EnrollOptions): Promise<{ id: string; token: string }>
  /** The token of a new identity generation, as `revokeIdentity` gives. */
  replaceIdentity(id: string): Promise<string>
}

export type GatewayOptions = Partial<GatewayConfig> & {
  engineId?: string
  clock?: Clock
  /** Another way to the same rows: one that fails, say. */
  db?: Store
}
export type EnrollOptions = { orgId?: string; trustTier?: TrustTier }
export type NodeWorldScope = { after(fn: () => Promise<void>): void }

/** `clock` is the world's: of the rows it makes and of its gateways. */
export async function nodeWorld(
  t: NodeWorldScope,
  db: Store,
  clock: Clock = systemClock,
): Promise<NodeWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'clutch-nodes-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const keyring = await openKeyring(folder, systemRandom)
  const orgId = newId('org', clock.now(), systemRandom)
  const rootKey = keyring.fleetRoot.current.publicKeyHex
  const give = async (id: string, identityGeneration: number): Promise<string> => {
    const { token, hash } = mintToken('node', rootKey, systemRandom)
    const tokenHash = Buffer.from(hash, 'hex')
    const now = clock.now()
    await transaction(db, (tx) =>
      addCredential(tx, { nodeRecordId: id, identityGeneration, tokenHash, now }),
    )
    return token
  }
  return {
    db,
    keyring,
    clock,
    orgId,
    gateway: (options = {}) => openGateway(t, { db, keyring, clock }, options),
    async enroll(nodeId, options = {}) {
      const id = await insertNode(db, clock, { nodeId, orgId, ...options })
      return { id, token: await give(id, 1) }
    },
    async replaceIdentity(id) {
      const { identityGeneration } = await db
        .updateTable('nodes')
        .set((eb) => ({ identityGeneration: eb('identityGeneration', '+', 1) }))
        .where('id', '=', id)
        .returning('identityGeneration')
        .executeTakeFirstOrThrow()
      return give(id, identityGeneration)
    },
  }
}

async function openGateway(
  t: NodeWorldScope,
  world: Pick<NodeWorld, 'db' | 'keyring' | 'clock'>,
  { engineId = 'eng_test', clock = world.clock, db = world.db, ...config }: GatewayOptions,
): Promise<RunningGateway> {
  const keys = await openGatewayKeys(world.keyring, engineId, { clock, random: systemRandom })
  const gateway = await startGateway({
    engineId,
    version: 'test',
    db,
    clock,
    random: systemRandom,
    log: silentLogger,
    keys,
    config: { host: '127.0.0.1', port: 0, ...config },
  })
  t.after(() => gateway.stop())
  return gateway
}

async function insertNode(
  db: Store,
  clock: Clock,
  node: { nodeId: string; orgId: string; trustTier?: TrustTier },
): Promise<string> {
  const now = new Date(clock.now())
  const id = newId('node', clock.now(), systemRandom)
  const row = nodeRow(id, node.orgId, {
    ...node,
    provisionState: 'adopting',
    connectivity: 'disconnected',
    generation: 0,
    observedGeneration: 0,
    cpuMillis: null,
    memMb: null,
    runtimes: null,
    createdAt: now,
    updatedAt: now,
  })
  await seedNodes(db, [row], null)
  return id
}

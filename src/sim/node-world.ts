// A gateway with its store and keys, and nodes enrolled straight into the rows: what tests of sessions stand on.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock, type Clock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { newId } from '#lib/id.ts'
import { systemRandom } from '#lib/random.ts'
import { mintToken } from '#protocol/enroll-token.ts'
import type { Store } from '#store/connect.ts'
import { transaction } from '#store/connect.ts'
import { addCredential } from '#store/credentials.ts'
import { openKeyring, type Keyring } from '#store/keyring.ts'
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

export type GatewayOptions = Partial<GatewayConfig> & { engineId?: string; clock?: Clock }
export type EnrollOptions = { orgId?: string; trustTier?: 'secure' | 'community' }
export type NodeWorldScope = { after(fn: () => Promise<void>): void }

const ROOT_KEY_OFFSET = 12

/** Polls until it holds; fails naming what did not come. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  withinMs = 10_000,
): Promise<void> {
  const deadline = systemClock.monotonic() + withinMs
  while (!(await holds())) {
    if (systemClock.monotonic() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`)
    await systemClock.sleep(POLL_MS)
  }
}

const POLL_MS = 20

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
  const rootKey = keyring.fleetRoot.current.publicKey
    .export({ type: 'spki', format: 'der' })
    .subarray(ROOT_KEY_OFFSET)
    .toString('hex')
  const mint = (): { token: string; hash: Buffer } => {
    const { token, hash } = mintToken('node', rootKey, systemRandom)
    return { token, hash: Buffer.from(hash, 'hex') }
  }
  return {
    db,
    keyring,
    clock,
    orgId,
    async gateway({ engineId = 'eng_test', clock: own = clock, ...config } = {}) {
      const keys = await openGatewayKeys(keyring, engineId, { clock: own, random: systemRandom })
      const gateway = await startGateway({
        engineId,
        version: 'test',
        db,
        clock: own,
        random: systemRandom,
        log: silentLogger,
        keys,
        config: { host: '127.0.0.1', port: 0, ...config },
      })
      t.after(() => gateway.stop())
      return gateway
    },
    async enroll(nodeId, options = {}) {
      const { token, hash } = mint()
      const org = options.orgId ?? orgId
      const id = await insertNode(db, clock, { nodeId, orgId: org, ...options })
      await transaction(db, (tx) =>
        addCredential(tx, {
          nodeRecordId: id,
          identityGeneration: 1,
          tokenHash: hash,
          now: clock.now(),
        }),
      )
      return { id, token }
    },
    async replaceIdentity(id) {
      const { token, hash } = mint()
      await transaction(db, async (tx) => {
        const { identityGeneration } = await tx
          .updateTable('nodes')
          .set((eb) => ({ identityGeneration: eb('identityGeneration', '+', 1) }))
          .where('id', '=', id)
          .returning('identityGeneration')
          .executeTakeFirstOrThrow()
        await addCredential(tx, {
          nodeRecordId: id,
          identityGeneration,
          tokenHash: hash,
          now: clock.now(),
        })
      })
      return token
    },
  }
}

async function insertNode(
  db: Store,
  clock: Clock,
  node: { nodeId: string; orgId: string; trustTier?: 'secure' | 'community' },
): Promise<string> {
  const now = new Date(clock.now())
  const id = newId('node', clock.now(), systemRandom)
  const { orgId, nodeId, trustTier = 'secure' } = node
  const [siteId, poolId] = [`site_${orgId}`, `pool_${orgId}`]
  await db
    .insertInto('sites')
    .values({ id: siteId, orgId, name: 'default', createdAt: now })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  await db
    .insertInto('pools')
    .values({ id: poolId, orgId, siteId, name: 'default', kind: 'vps-host', createdAt: now })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  await db
    .insertInto('nodes')
    .values({
      id,
      orgId,
      nodeId,
      siteId,
      poolId,
      role: 'host',
      trust: 'tenant-owned',
      trustTier,
      provisionState: 'adopting',
      maintenance: false,
      cordoned: false,
      power: 'unknown',
      connectivity: 'disconnected',
      noScheduleReasons: [],
      generation: 0,
      observedGeneration: 0,
      identityGeneration: 1,
      version: 1,
      communityFlag: false,
      jailerFlag: false,
      usedCpuMillis: 0,
      usedMemMb: 0,
      createdAt: now,
      updatedAt: now,
    })
    .execute()
  return id
}

// The predicates of placement in TypeScript and in SQL say the same of every node (ND-12, PL-1, PL-2).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import {
  CONNECTIVITIES,
  PROVISION_STATES,
  type PlacementNode,
  ROLES,
  RUNTIMES,
  TRUSTS,
} from '#core/node/node.ts'
import { schedulable } from '#core/node/schedulable.ts'
import { admissible, CHECKS, fits, type Workload } from '#core/placement/place.ts'
import { type Random, seededRandom } from '#lib/random.ts'
import { admissibleSql, fitsSql, placementNodes, schedulableSql } from '#store/placement.ts'
import { testDatabase } from '#store/test-database.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'

const NODES = 2_500
const WORKLOADS = 60
const ORGS = ['org_a', 'org_b'] as const

const pick = <T>(random: Random, from: readonly T[]): T => from[random.below(from.length)] as T
/** Mostly the usual value, so that every check is the first to fail now and then. */
const mostly = <T>(random: Random, usual: T, from: readonly T[]): T =>
  random.float() < 0.75 ? usual : pick(random, from)
const some = <T>(random: Random, from: readonly T[]): T[] => from.filter(() => random.float() < 0.5)

function generate(random: Random, i: number): ReturnType<typeof nodeRow> {
  const registered = random.float() < 0.95
  const cpuMillis = pick(random, [0, 500, 1_000, 4_000, 64_000])
  const memMb = pick(random, [0, 128, 192, 1_024, 65_536])
  const orgId = mostly(random, ORGS[0], ORGS)
  return nodeRow(`node-${i}`, orgId, {
    region: pick(random, [null, null, 'blr1', 'fra1']),
    contributor: pick(random, [null, 'somebody']),
    role: mostly(random, 'host', ROLES),
    trust: mostly(random, 'tenant-owned', TRUSTS),
    trustTier: pick(random, ['secure', 'community']),
    communityFlag: random.float() < 0.2,
    provisionState: mostly(random, 'adopted', PROVISION_STATES),
    observedGeneration: mostly(random, 1, [0, 1, 2]),
    maintenance: random.float() < 0.1,
    cordoned: random.float() < 0.1,
    connectivity: mostly(random, 'connected', CONNECTIVITIES),
    noScheduleReasons: mostly(random, [], [['draining'], ['taint:gpu', 'unreachable']]),
    cpuMillis: registered ? cpuMillis : null,
    memMb: registered ? memMb : null,
    runtimes: registered ? mostly(random, ['wasm'], [some(random, RUNTIMES)]) : null,
    usedCpuMillis: pick(random, [0, 0, cpuMillis, Math.max(0, cpuMillis - 250), cpuMillis + 100]),
    usedMemMb: pick(random, [0, 0, memMb, Math.max(0, memMb - 128)]),
    revokedAt: random.float() < 0.05 ? new Date(0) : null,
  })
}

const workload = (random: Random): Workload => ({
  orgId: mostly(random, ORGS[0], ORGS),
  runtime: mostly(random, 'wasm', RUNTIMES),
  cpuMillis: pick(random, [100, 250, 500, 1_000, 16_000]),
  memMb: pick(random, [80, 128, 192, 4_160]),
  allowCommunity: random.float() < 0.5,
  region: pick(random, [null, null, 'blr1', 'fra1']),
})

test('ND-12 PL-2 schedulable and fits say the same in TypeScript and in SQL of 2,500 generated nodes', async (t) => {
  const seed = `${process.pid}-${Date.now()}`
  t.diagnostic(`seed ${seed}`)
  const random = seededRandom(seed)
  const db = await testDatabase(t)
  const rows = Array.from({ length: NODES }, (_, i) => generate(random, i))
  await seedNodes(db, rows, null)
  const nodes = new Map<string, PlacementNode>()
  for (const orgId of ORGS)
    for (const node of await placementNodes(db, orgId)) nodes.set(node.id, node)
  const revoked = rows.filter((row) => row.revokedAt).length
  assert.equal(nodes.size, NODES - revoked, 'revoked nodes are in no list of placement')

  const all = await sql<{ id: string; schedulable: boolean }>`
    select n.id, ${schedulableSql} as schedulable from nodes n where n.revoked_at is null`.execute(
    db,
  )
  for (const row of all.rows)
    assert.equal(row.schedulable, schedulable(nodes.get(row.id)!).ok, `${row.id} under ${seed}`)

  const failed = new Set<string>()
  for (let i = 0; i < WORKLOADS; i++) {
    const work = workload(random)
    const found = await sql<{ id: string; fits: boolean; admissible: boolean }>`
      select n.id, ${fitsSql(work)} as fits, ${admissibleSql(work)} as admissible from nodes n`.execute(
      db,
    )
    for (const row of found.rows) {
      const node = nodes.get(row.id)
      const fit = node ? fits(node, work) : ({ ok: false, check: 'revoked' } as const)
      const said = `${row.id} for ${JSON.stringify(work)} under ${seed}`
      assert.equal(row.fits, fit.ok, said)
      const roomAside = fit.ok || fit.check === 'cpu' || fit.check === 'memory'
      assert.equal(row.admissible, roomAside, said)
      if (node) assert.equal(admissible(node, work), roomAside, said)
      failed.add(fit.ok ? 'fits' : fit.check)
    }
  }
  assert.deepEqual([...failed].toSorted(), ['fits', 'revoked', ...CHECKS].toSorted())
})

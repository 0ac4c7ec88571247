import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KEY_CACHED_MS } from '#core/access/limits.ts'
import { mintOrgKey, ORG_KEY_PREFIX, OrgKeys } from '#engine/auth-keys.ts'
import { AppError } from '#lib/error.ts'
import { fakeClock, type FakeClock } from '#lib/fake-clock.ts'
import { seededRandom } from '#lib/random.ts'
import type { KeyRow } from '#store/auth-keys.ts'

type Fake = {
  keys: OrgKeys
  clock: FakeClock
  rows: Map<string, KeyRow>
  lookups: () => number
  away: { error: Error | undefined }
  touched: { id: string; at: number }[]
}

function fake(): Fake {
  const clock = fakeClock()
  const rows = new Map<string, KeyRow>()
  const away: Fake['away'] = { error: undefined }
  const touched: Fake['touched'] = []
  let lookups = 0
  const keys = new OrgKeys({
    async find(hash) {
      lookups++
      await Promise.resolve()
      if (away.error) throw away.error
      return rows.get(hash)
    },
    touch: async (used) => void touched.push(...used),
    clock,
    roleOf: () => 'member',
  })
  return { keys, clock, rows, lookups: () => lookups, away, touched }
}

function add(
  world: Fake,
  seed: string,
  expiresAt: Date | null = null,
): { secret: string; id: string } {
  const { secret, hash } = mintOrgKey(seededRandom(seed))
  const id = `key_${seed}`
  world.rows.set(hash, {
    id,
    orgId: 'org_1',
    name: seed,
    role: 'member',
    createdAt: new Date(0),
    expiresAt,
    lastUsedAt: null,
    slug: 'acme',
    orgName: 'Acme',
  })
  return { secret, id }
}

const unavailable = new AppError('UNAVAILABLE', 'away', {
  details: { reason: 'store_unavailable' },
})

test('a key is 256 random bits under a prefix that scanners can find', () => {
  const { secret } = mintOrgKey(seededRandom('a'))
  assert.ok(secret.startsWith(ORG_KEY_PREFIX))
  assert.equal(Buffer.from(secret.slice(ORG_KEY_PREFIX.length), 'base64url').length, 32)
})

test('a good key is looked up once in ten seconds, however many calls come at once', async () => {
  const world = fake()
  const { secret } = add(world, 'a')
  const found = await Promise.all(Array.from({ length: 50 }, () => world.keys.find(secret)))
  assert.ok(found.every((key) => key?.org.slug === 'acme'))
  assert.equal(world.lookups(), 1)
  await world.clock.advance(KEY_CACHED_MS)
  await world.keys.find(secret)
  assert.equal(world.lookups(), 2)
})

test('an unknown key is asked about every time and kept nowhere', async () => {
  const world = fake()
  assert.equal(await world.keys.find('clt_k_x'), undefined)
  assert.equal(await world.keys.find('clt_k_x'), undefined)
  assert.equal(world.lookups(), 2)
  assert.equal(await world.keys.flush(), 0)
})

test('a dropped key is looked up again', async () => {
  const world = fake()
  const { secret, id } = add(world, 'a')
  await world.keys.find(secret)
  world.rows.clear()
  world.keys.drop(id)
  assert.equal(await world.keys.find(secret), undefined)
})

test('an expiry counts even for what is remembered', async () => {
  const world = fake()
  const { secret } = add(world, 'a', new Date(world.clock.now() + 5_000))
  assert.ok(await world.keys.find(secret))
  await world.clock.advance(5_000)
  assert.equal(await world.keys.find(secret), undefined)
})

test('OP-9 while the store is away a key that was good stays good, and no other gets in', async () => {
  const world = fake()
  const { secret } = add(world, 'a')
  const { secret: never } = add(world, 'b')
  await world.keys.find(secret)
  world.away.error = unavailable
  await world.clock.advance(600_000)
  assert.ok(await world.keys.find(secret))
  await assert.rejects(world.keys.find(never), unavailable)
  world.away.error = new Error('a mistake of ours')
  await assert.rejects(world.keys.find(secret), /a mistake of ours/)
  world.away.error = undefined
  world.rows.clear()
  assert.equal(await world.keys.find(secret), undefined)
  world.away.error = unavailable
  await assert.rejects(world.keys.find(secret), unavailable, 'a revoked key is forgotten')
})

test('AC-5 the last use of each key is written once a flush', async () => {
  const world = fake()
  const { secret, id } = add(world, 'a')
  await world.keys.find(secret)
  await world.clock.advance(1_000)
  await world.keys.find(secret)
  assert.equal(await world.keys.flush(), 1)
  assert.deepEqual(world.touched, [{ id, at: world.clock.now() }])
  assert.equal(await world.keys.flush(), 0)
})

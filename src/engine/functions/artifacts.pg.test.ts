import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { openBlobs, type Blobs } from '#store/blobs.ts'
import { type Store, transaction } from '#store/connect.ts'
import { testDatabase } from '#store/test-database.ts'
import { PREPARER } from '#wasm/prepare.ts'
import { Artifacts, type Prepare } from '#engine/functions/artifacts.ts'

type Setup = { db: Store; blobs: Blobs; artifacts: Artifacts; calls: () => number }

async function setup(t: TestContext, prepare?: Prepare): Promise<Setup> {
  const db = await testDatabase(t)
  const folder = await mkdtemp(join(tmpdir(), 'clutch-artifacts-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const blobs = await openBlobs(folder, { clock: systemClock, random: systemRandom })
  let calls = 0
  const usual: Prepare = async (bytes, { memMb }) => {
    const artifact = Buffer.concat([bytes, Buffer.from(` for ${memMb}`)])
    return { ok: true, artifact, kind: 'component', preparer: PREPARER }
  }
  const counted: Prepare = (bytes, options) => {
    calls++
    return (prepare ?? usual)(bytes, options)
  }
  return {
    db,
    blobs,
    artifacts: new Artifacts({ db, blobs, prepare: counted }),
    calls: () => calls,
  }
}

const deploy = async ({ db, artifacts }: Setup, bytes: Uint8Array, memMb: number) => {
  const prepared = await artifacts.deploy(bytes, { memMb, orgId: 'org_a' })
  await transaction(db, (tx) => prepared.save(tx, new Date()))
  return prepared
}

const bytes = Buffer.from('a component')

test('FN-2 equal bytes with an equal cap are prepared once, at one time or later', async (t) => {
  const go = Promise.withResolvers<void>()
  const s = await setup(t, async (given, { memMb }) => {
    await go.promise
    const artifact = Buffer.concat([given, Buffer.from(` for ${memMb}`)])
    return { ok: true, artifact, kind: 'component', preparer: PREPARER }
  })
  const both = [deploy(s, bytes, 64), deploy(s, bytes, 64)]
  // Round trips for both to have looked into the database: the second would otherwise find nothing to share.
  for (let i = 0; i < 50; i++) await s.db.selectFrom('artifacts').selectAll().execute()
  go.resolve()
  await Promise.all(both)
  await deploy(s, bytes, 64)
  assert.equal(s.calls(), 1)
  const other = await deploy(s, bytes, 32)
  assert.equal(s.calls(), 2, 'the cap is built into the artifact')
  assert.equal(other.artifact.sha256, sha256Hex('a component for 32'))
  assert.equal((await s.db.selectFrom('artifacts').selectAll().execute()).length, 2)
})

test('FN-2 a row whose bytes are gone is not believed: it is prepared again', async (t) => {
  const s = await setup(t)
  const { artifact, componentSha256 } = await deploy(s, bytes, 64)
  await s.blobs.delete(artifact.sha256)
  await s.blobs.delete(componentSha256)
  await deploy(s, bytes, 64)
  assert.equal(s.calls(), 2)
  assert.ok(await s.blobs.has(artifact.sha256))
  assert.ok(await s.blobs.has(componentSha256))
})

test('FN-2 bytes that are removed between preparing and saving are put again, or the deploy is refused', async (t) => {
  const s = await setup(t)
  const first = await s.artifacts.deploy(bytes, { memMb: 64, orgId: 'org_a' })
  await s.blobs.delete(first.componentSha256)
  await transaction(s.db, (tx) => first.save(tx, new Date()))
  assert.ok(await s.blobs.has(first.componentSha256))
  const second = await s.artifacts.deploy(bytes, { memMb: 64, orgId: 'org_a' })
  await s.blobs.delete(second.artifact.sha256)
  await assert.rejects(
    transaction(s.db, (tx) => second.save(tx, new Date())),
    {
      code: 'UNAVAILABLE',
      details: { reason: 'ARTIFACT_REMOVED', retryAfterMs: 0, next: 'Deploy again' },
    },
  )
})

test('FN-7 what another preparer made is prepared anew from the stored component, and recorded', async (t) => {
  const s = await setup(t)
  const { componentSha256 } = await deploy(s, bytes, 64)
  await s.db.updateTable('artifacts').set({ preparer: 'an older one' }).execute()
  const version = { componentSha256, memMb: 64, sizeBytes: bytes.length, orgId: 'org_a' }
  await s.artifacts.again(version, new Date())
  assert.equal(s.calls(), 2)
  const rows = await s.db.selectFrom('artifacts').select('preparer').execute()
  assert.deepEqual(new Set(rows.map((row) => row.preparer)), new Set(['an older one', PREPARER]))
  await s.blobs.delete(componentSha256)
  const lost = s.artifacts.again({ ...version, memMb: 32 }, new Date())
  await assert.rejects(lost, { code: 'INTERNAL' })
})

test('FN-2 two prepare at once, sixteen wait, the next hears UNAVAILABLE and when to come back', async (t) => {
  let running = 0
  let most = 0
  const go = Promise.withResolvers<void>()
  const s = await setup(t, async () => {
    most = Math.max(most, ++running)
    await go.promise
    running--
    return { ok: false, reason: 'MALFORMED', message: 'not a component' }
  })
  const refused: unknown[] = []
  const all = Array.from({ length: 21 }, (_, i) =>
    s.artifacts
      .deploy(Buffer.from(`${i}`), { memMb: 64, orgId: `org_${i % 5}` })
      .catch((error: unknown) => {
        refused.push(error)
      }),
  )
  const deadline = Date.now() + 10_000
  while (refused.length < 3 || s.calls() < 2) {
    assert.ok(Date.now() < deadline)
    await systemClock.sleep(5)
  }
  for (const error of refused) {
    assert.ok(error instanceof AppError)
    const { reason, retryAfterMs } = error.details
    assert.deepEqual([error.code, reason, retryAfterMs], ['UNAVAILABLE', 'PREPARING_FULL', 2_000])
  }
  go.resolve()
  await Promise.all(all)
  assert.deepEqual([refused.length, s.calls(), most], [21, 18, 2])
})

test('FN-2 the preparer’s own trouble is told as it is, and nothing is kept', async (t) => {
  const s = await setup(t, async () => ({
    ok: false,
    reason: 'PREPARER_TIMEOUT',
    message: 'preparing took longer than 60000 ms',
  }))
  await assert.rejects(s.artifacts.deploy(bytes, { memMb: 64, orgId: 'org_a' }), {
    code: 'INVALID',
    message: 'preparing took longer than 60000 ms',
  })
  assert.equal(await s.blobs.has(sha256Hex(bytes)), false)
})

import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'

async function folder(t: TestContext): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'clutch-cache-'))
  t.after(() => rm(dataDir, { recursive: true, force: true }))
  return dataDir
}

const made = (
  size: number,
  fill: string,
): { bytes: Buffer; id: { sha256: string; bytes: number } } => {
  const bytes = Buffer.alloc(size, fill)
  return { bytes, id: { sha256: sha256Hex(bytes), bytes: size } }
}

async function* pieces(...chunks: Buffer[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

const refused = { name: 'Error', code: 'INVALID' }

test('000-48 an artifact is kept under its hash, over a restart too', async (t) => {
  const dataDir = await folder(t)
  const cache = await ArtifactCache.open(dataDir)
  const { bytes, id } = made(1000, 'a')
  assert.equal(cache.has(id.sha256), false)
  await cache.write(id, pieces(bytes.subarray(0, 400), bytes.subarray(400)))
  assert.deepEqual(await cache.read(id.sha256), bytes)
  const again = await ArtifactCache.open(dataDir)
  assert.equal(again.has(id.sha256), true)
  assert.deepEqual(await again.read(id.sha256), bytes)
})

test('000-48 bytes that are too few, too many, or of another hash leave nothing behind', async (t) => {
  const dataDir = await folder(t)
  const cache = await ArtifactCache.open(dataDir)
  const { bytes, id } = made(1000, 'a')
  const wrong = [bytes.subarray(1), Buffer.concat([bytes, bytes]), Buffer.alloc(1000, 'b')]
  for (const each of wrong) await assert.rejects(cache.write(id, pieces(each)), refused)
  await assert.rejects(cache.write({ ...id, sha256: '../../etc/passwd' }, pieces(bytes)), refused)
  assert.equal(cache.has(id.sha256), false)
  assert.deepEqual(await readdir(join(dataDir, 'artifacts')), [])
  await cache.write(id, pieces(bytes))
  assert.equal(cache.has(id.sha256), true)
})

test('000-48 a transfer that breaks off is told to who waits for it, and can be done again', async (t) => {
  const cache = await ArtifactCache.open(await folder(t))
  const { bytes, id } = made(1000, 'a')
  const failing = async function* (): AsyncGenerator<Uint8Array> {
    yield bytes.subarray(0, 10)
    throw new AppError('UNAVAILABLE', 'the stream ended')
  }
  const first = cache.write(id, failing())
  const waits = cache.arriving(id.sha256)
  assert.ok(waits)
  await assert.rejects(first)
  await waits
  assert.equal(cache.arriving(id.sha256), undefined)
  await cache.write(id, pieces(bytes))
  assert.equal(cache.has(id.sha256), true)
})

test('OP-10 the cache stays below its limit: what was used longest ago goes first', async (t) => {
  const dataDir = await folder(t)
  const cache = await ArtifactCache.open(dataDir, 2500)
  const [a, b, c] = [made(1000, 'a'), made(1000, 'b'), made(1000, 'c')]
  await cache.write(a.id, pieces(a.bytes))
  await cache.write(b.id, pieces(b.bytes))
  await cache.read(a.id.sha256)
  await cache.write(c.id, pieces(c.bytes))
  assert.deepEqual(
    [a, b, c].map(({ id }) => cache.has(id.sha256)),
    [true, false, true],
  )
  assert.equal((await readdir(join(dataDir, 'artifacts'))).length, 2)
  const big = made(3000, 'd')
  await assert.rejects(cache.write(big.id, pieces(big.bytes)), refused)
})

test('ND-19 what a killed agent left half-written is removed, and a file that vanished is not claimed', async (t) => {
  const dataDir = await folder(t)
  const cache = await ArtifactCache.open(dataDir)
  const { bytes, id } = made(1000, 'a')
  await cache.write(id, pieces(bytes))
  await writeFile(join(dataDir, 'artifacts', 'draft-9'), 'half')
  const again = await ArtifactCache.open(dataDir)
  assert.deepEqual(await readdir(join(dataDir, 'artifacts')), [id.sha256])
  await rm(join(dataDir, 'artifacts', id.sha256))
  assert.equal(await again.read(id.sha256), undefined)
  assert.equal(again.has(id.sha256), false)
})

test('FN-8 two transfers of one artifact that end at one time count once', async (t) => {
  const cache = await ArtifactCache.open(await folder(t), 1000)
  const first = made(400, 'a')
  await Promise.all([1, 2, 3].map(() => cache.write(first.id, pieces(first.bytes))))
  const second = made(500, 'b')
  await cache.write(second.id, pieces(second.bytes))
  assert.equal(cache.has(first.id.sha256), true)
  await cache.write(made(500, 'c').id, pieces(made(500, 'c').bytes))
  assert.equal(cache.has(first.id.sha256), false)
})

import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import fc from 'fast-check'
import { sha256Hex } from '#lib/bytes.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { systemRandom } from '#lib/random.ts'
import { type Blobs, openBlobs } from '#store/blobs.ts'

const clock = fakeClock()

async function open(t: TestContext): Promise<{ blobs: Blobs; folder: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'clutch-blobs-'))
  t.after(() => rmSync(folder, { recursive: true }))
  return { folder, blobs: await openBlobs(folder, { clock, random: systemRandom }) }
}

test('design 5 any bytes in any pieces are found again by their hash', async (t) => {
  const { blobs } = await open(t)
  const pieces = fc.array(fc.uint8Array({ maxLength: 2000 }), { maxLength: 6 })
  await fc.assert(
    fc.asyncProperty(pieces, async (chunks) => {
      const whole = Buffer.concat(chunks)
      const put = await blobs.put(stream(chunks))
      assert.deepEqual(put, { sha256: sha256Hex(whole), bytes: whole.length })
      assert.deepEqual(await blobs.get(put.sha256), whole)
      assert.deepEqual(await blobs.put(whole), put)
    }),
    { numRuns: 40 },
  )
})

test('design 5 a blob is read from an offset, and is gone after its deletion', async (t) => {
  const { blobs } = await open(t)
  const { sha256 } = await blobs.put(Buffer.from('0123456789'))
  const part = await blobs.read(sha256, 6)
  assert.equal(part?.bytes, 10)
  assert.equal((await part!.stream.toArray()).join(''), '6789')
  assert.equal(await blobs.has(sha256), true)
  assert.equal(await blobs.delete(sha256), true)
  assert.equal(await blobs.delete(sha256), false)
  assert.equal(await blobs.has(sha256), false)
  assert.equal(await blobs.get(sha256), undefined)
  assert.equal(await blobs.read(sha256), undefined)
})

test('design 5 too many bytes, other bytes and a broken stream leave nothing', async (t) => {
  const { blobs, folder } = await open(t)
  const bytes = Buffer.alloc(1000)
  const exact = await blobs.put(bytes, { bytesMax: 1000 })
  await blobs.delete(exact.sha256)
  await assert.rejects(blobs.put(bytes, { bytesMax: 999 }), { code: 'TOO_LARGE' })
  await assert.rejects(blobs.put(bytes, { sha256: '0'.repeat(64) }), { code: 'INVALID' })
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield bytes
    throw new Error('the line broke')
  }
  await assert.rejects(blobs.put(broken()), /the line broke/)
  assert.deepEqual(readdirSync(join(folder, 'arriving')), [])
  assert.equal(await blobs.has(exact.sha256), false)
})

test('design 5 damaged bytes are told, and the next put of the right ones repairs a short file', async (t) => {
  const { blobs, folder } = await open(t)
  const { sha256 } = await blobs.put(Buffer.from('right'))
  const path = join(folder, sha256.slice(0, 2), sha256.slice(2))
  writeFileSync(path, 'wrong')
  await assert.rejects(blobs.get(sha256), { code: 'INTERNAL' })
  writeFileSync(path, 'rig')
  await blobs.put(Buffer.from('right'))
  assert.equal(String(await blobs.get(sha256)), 'right')
})

test('design 5 a name that is no hash reaches no file', async (t) => {
  const { blobs } = await open(t)
  for (const name of ['../../etc/passwd', '', 'A'.repeat(64), `${'0'.repeat(63)}/`])
    await assert.rejects(blobs.get(name), /not a SHA-256/)
})

test('design 5 what a killed program left is removed after a day, not before', async (t) => {
  const { folder } = await open(t)
  const at = (name: string, hoursAgo: number): void => {
    writeFileSync(join(folder, 'arriving', name), 'x')
    const time = new Date(clock.now() - hoursAgo * 3_600_000)
    utimesSync(join(folder, 'arriving', name), time, time)
  }
  at('old', 25)
  at('new', 23)
  await openBlobs(folder, { clock, random: systemRandom })
  assert.deepEqual(readdirSync(join(folder, 'arriving')), ['new'])
})

test('design 5 the same bytes put by many at once are one blob', async (t) => {
  const { blobs, folder } = await open(t)
  const bytes = Buffer.alloc(200_000, 'x')
  const all = await Promise.all(Array.from({ length: 12 }, () => blobs.put(stream([bytes]))))
  assert.equal(new Set(all.map((blob) => blob.sha256)).size, 1)
  assert.deepEqual(await blobs.get(all[0]!.sha256), bytes)
  assert.deepEqual(readdirSync(join(folder, 'arriving')), [])
})

async function* stream(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { type Artifact, decodeArtifact, encodeArtifact } from '#wasm/artifact.ts'

const ARTIFACT: Artifact = {
  kind: 'component',
  imports: ['wasi:cli/exit@0.2.12'],
  glue: '(function(){"ü"})()',
  modules: [
    { name: 'guest.core.wasm', bytes: Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7) },
    { name: 'guest.core2.wasm', bytes: Uint8Array.of(9, 9, 9, 9, 9, 9, 9, 9, 9) },
  ],
}

const isRefusal = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'INVALID' && error.details.reason === 'BAD_ARTIFACT'

test('FN-2 an artifact comes back as it was', () => {
  const bytes = encodeArtifact(ARTIFACT)
  assert.deepEqual(decodeArtifact(bytes), ARTIFACT)
  // Also from the middle of a larger buffer, as it arrives over a pipe.
  const within = Buffer.concat([Buffer.from('xyz'), bytes]).subarray(3)
  assert.deepEqual(decodeArtifact(within).imports, ARTIFACT.imports)
})

test('FN-2 the layout of an artifact is version 1 and stays', () => {
  const bytes = encodeArtifact({
    kind: 'preview1',
    imports: [],
    glue: '',
    modules: [{ name: 'main', bytes: Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0) }],
  })
  const header =
    '{"version":1,"kind":"preview1","imports":[],"glue":"","modules":[{"name":"main","length":8}]}'
  const expected = Buffer.concat([
    Buffer.from('clwa'),
    Buffer.of(header.length, 0, 0, 0),
    Buffer.from(header),
    Buffer.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0),
  ])
  assert.deepEqual(Buffer.from(bytes), expected)
})

test('FN-2 every cut and every longer artifact is refused', () => {
  const bytes = encodeArtifact(ARTIFACT)
  for (let length = 0; length < bytes.length; length++)
    assert.throws(() => decodeArtifact(bytes.subarray(0, length)), isRefusal, `${length}`)
  assert.throws(() => decodeArtifact(Buffer.concat([bytes, Buffer.of(0)])), isRefusal)
})

test('FN-2 another version, another kind and missing fields are refused', () => {
  const withHeader = (header: unknown): Buffer => {
    const text = Buffer.from(JSON.stringify(header))
    const length = Buffer.alloc(4)
    length.writeUInt32LE(text.length)
    return Buffer.concat([Buffer.from('clwa'), length, text])
  }
  const good = { version: 1, kind: 'component', imports: [], glue: '', modules: [] }
  assert.equal(decodeArtifact(withHeader(good)).kind, 'component')
  for (const change of [
    { version: 2 },
    { kind: 'native' },
    { imports: [1] },
    { glue: null },
    { modules: [{ name: 'a' }] },
    { modules: [{ name: 'a', length: -8 }] },
    { modules: [{ name: 'a', length: 1e15 }] },
    { modules: Array.from({ length: 1001 }, () => ({ name: 'a', length: 8 })) },
    { kind: 'preview1' },
  ])
    assert.throws(
      () => decodeArtifact(withHeader({ ...good, ...change })),
      isRefusal,
      JSON.stringify(change),
    )
  for (const header of [null, [], 7, 'x'])
    assert.throws(() => decodeArtifact(withHeader(header)), isRefusal)
})

test('FN-2 mutated artifacts are read or refused, never anything else', () => {
  const bytes = encodeArtifact(ARTIFACT)
  const random = seededRandom('artifact')
  for (let i = 0; i < 5000; i++) {
    const copy = Uint8Array.from(bytes)
    for (let left = 1 + random.below(3); left > 0; left--)
      copy[random.below(copy.length)] = random.below(256)
    try {
      decodeArtifact(copy)
    } catch (error) {
      assert.ok(isRefusal(error), String(error))
    }
  }
})

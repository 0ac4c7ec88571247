import assert from 'node:assert/strict'
import { X509Certificate } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { inspect } from 'node:util'
import { AppError } from '#lib/error.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { openKeyring, rotateKey } from '#store/keyring.ts'

function folder(t: TestContext): string {
  const at = mkdtempSync(join(tmpdir(), 'clutch-keyring-'))
  t.after(() => rmSync(at, { recursive: true }))
  return join(at, 'secrets')
}

const reason = (expected: string, next?: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError, String(error))
  assert.equal(error.details.reason, expected)
  if (next) assert.match(String(error.details.next), next)
  return true
}

test('design 9 a keyring is made once, 0600 in 0700, and loaded the same ever after', async (t) => {
  const at = folder(t)
  const made = await openKeyring(at, systemRandom)
  const engine = await made.engineKey('eng_a')
  const again = await openKeyring(at, systemRandom)
  for (const kind of ['fleetRoot', 'ca', 'env', 'upload', 'auth'] as const) {
    assert.equal(made[kind].all.length, 1)
    assert.equal(again[kind].current.id, made[kind].current.id)
  }
  assert.equal((await again.engineKey('eng_a')).pem(), engine.pem())
  assert.notEqual((await again.engineKey('eng_b')).id, engine.id)
  assert.deepEqual(again.env.current.bytes(), made.env.current.bytes())
  assert.equal(statSync(at).mode & 0o777, 0o700)
  for (const name of readdirSync(at))
    assert.equal(statSync(join(at, name)).mode & 0o777, 0o600, name)
})

test('design 9 two engines that start on an empty keyring get the same keys', async (t) => {
  const at = folder(t)
  const rings = await Promise.all(Array.from({ length: 8 }, () => openKeyring(at, systemRandom)))
  for (const kind of ['fleetRoot', 'ca', 'env', 'upload', 'auth'] as const)
    assert.equal(new Set(rings.map((ring) => ring[kind].current.id)).size, 1)
  assert.ok(readdirSync(at).every((name) => !name.endsWith('.part')))
})

test('design 9 a key file or folder that others can read is refused with the chmod that helps', async (t) => {
  const at = folder(t)
  await openKeyring(at, systemRandom)
  chmodSync(join(at, 'env-1.key'), 0o640)
  await assert.rejects(
    openKeyring(at, systemRandom),
    reason('KEYRING_OPEN', /^chmod 600 .*env-1\.key$/),
  )
  chmodSync(join(at, 'env-1.key'), 0o600)
  chmodSync(at, 0o755)
  await assert.rejects(
    openKeyring(at, systemRandom),
    reason('KEYRING_OPEN', /^chmod 700 .*secrets$/),
  )
})

test('design 9 a damaged key is refused without quoting it', async (t) => {
  const at = folder(t)
  mkdirSync(at, { mode: 0o700 })
  for (const [name, text] of [
    ['fleet-root-1.pem', 'canary-5150'],
    ['fleet-root-1.pem', `-----BEGIN PRIVATE KEY-----\ncanary5150\n-----END PRIVATE KEY-----\n`],
    ['env-1.key', 'canary-5150'],
    ['auth-1.key', 'Y2FuYXJ5LTUxNTA='],
    ['upload-1.key', 'canary-5150'.repeat(1000)],
  ] as const) {
    writeFileSync(join(at, name), text, { mode: 0o600 })
    await assert.rejects(openKeyring(at, systemRandom), (error: unknown) => {
      assert.ok(reason('KEYRING_MALFORMED')(error))
      assert.doesNotMatch(inspect(error, { depth: 10 }), /canary-?5150|Y2FuYXJ5/)
      return true
    })
    rmSync(join(at, name))
  }
})

test('design 9 rotation adds a key that becomes current; the old one still opens', async (t) => {
  const at = folder(t)
  const before = await openKeyring(at, systemRandom)
  assert.equal(await rotateKey(at, 'env', systemRandom), 2)
  for (let number = 3; number <= 11; number++)
    assert.equal(await rotateKey(at, 'env', systemRandom), number)
  const after = await openKeyring(at, systemRandom)
  assert.notEqual(after.env.current.id, before.env.current.id)
  assert.equal(after.env.all.length, 11)
  assert.deepEqual(after.env.find(before.env.current.id)?.bytes(), before.env.current.bytes())
  assert.equal(after.env.find('env:0000000000000000'), undefined)
  assert.equal(after.fleetRoot.current.id, before.fleetRoot.current.id)
})

test('design 9 the authority is a CA certificate that depends on its key only', async (t) => {
  const at = folder(t)
  const { ca } = await openKeyring(at, seededRandom(7))
  const again = await openKeyring(at, systemRandom)
  assert.equal(again.ca.current.certificatePem, ca.current.certificatePem)
  const certificate = new X509Certificate(ca.current.certificatePem)
  assert.ok(certificate.ca)
  assert.ok(certificate.verify(ca.current.publicKey))
  assert.ok(certificate.checkPrivateKey(ca.current.privateKey))
})

test('design 9 printing a keyring shows no key', async (t) => {
  const at = folder(t)
  const ring = await openKeyring(at, systemRandom)
  const printed = inspect(ring, { depth: 20, showHidden: true }) + JSON.stringify(ring)
  for (const name of readdirSync(at)) {
    const secret = readFileSync(join(at, name), 'utf8')
      .split('\n')
      .find((line) => !line.includes('---'))!
    assert.ok(!printed.includes(secret), name)
  }
  assert.ok(!printed.includes(ring.env.current.bytes().toString('hex')))
})

test('design 9 an engine id cannot name a file elsewhere', async (t) => {
  const ring = await openKeyring(folder(t), systemRandom)
  for (const id of ['../x', '', '.', 'a/b', 'A', 'x'.repeat(65)])
    await assert.rejects(ring.engineKey(id), /cannot name a key file/)
})

import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { mintToken } from '#protocol/enroll-token.ts'
import { createIdentity } from '#protocol/identity.ts'
import type { Welcome } from '#protocol/messages.ts'
import { openEnrollment, type Enrollment } from '#agent/enrollment.ts'
import { Journal } from '#agent/journal.ts'

const random = seededRandom('enrollment')
const root = await createIdentity(random)
const mint = (): string => mintToken('node', root.publicKey, random).token

const welcome = (epoch: number, generation = 1): Welcome => ({
  t: 'welcome',
  epoch,
  engineId: 'eng_1',
  heartbeatMs: 1000,
  certificate: Buffer.from('certificate'),
  fleetRoot: Buffer.from(root.publicKey, 'hex'),
  identityGeneration: generation,
  node: { id: 'node_1', orgId: 'org_1', trustTier: 'secure' },
  desired: { generation: 0 },
})

async function folder(t: TestContext): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'clutch-agent-'))
  t.after(() => rm(dataDir, { recursive: true, force: true }))
  return dataDir
}

/** One life of an agent on the folder. */
async function live<T>(
  dataDir: string,
  token: string | undefined,
  fn: (enrollment: Enrollment, journal: Journal) => T | Promise<T>,
): Promise<T> {
  const journal = Journal.open(dataDir)
  try {
    const enrollment = await openEnrollment({ dataDir, journal, random, nodeId: 'node-a1', token })
    return await fn(enrollment, journal)
  } finally {
    journal.close()
  }
}

const reasonOf = async (promise: Promise<unknown>): Promise<unknown> => {
  const error = await promise.then(
    () => assert.fail('it was not refused'),
    (caught: unknown) => caught,
  )
  assert.ok(error instanceof AppError)
  return error.details.reason
}

test('ND-2 a typo in the token is refused before anything is dialled', async (t) => {
  const dataDir = await folder(t)
  const token = mint()
  const typo = token.slice(0, -1) + (token.endsWith('A') ? 'B' : 'A')
  assert.equal(await reasonOf(live(dataDir, typo, () => {})), 'TOKEN_MALFORMED')
})

test('000-22 without an identity and without a token the agent says how to get one', async (t) => {
  const dataDir = await folder(t)
  assert.equal(await reasonOf(live(dataDir, undefined, () => {})), 'TOKEN_MISSING')
  const journal = Journal.open(dataDir)
  t.after(() => journal.close())
  const given = { nodeId: 'node-a1', token: undefined, tokenFile: '/run/t' }
  const opened = openEnrollment({ dataDir, journal, random, ...given })
  await assert.rejects(
    opened,
    /holds no identity, and the token file \/run\/t is not there or empty$/,
  )
})

test('ND-4 the token is shown until the first welcome, and not kept after it', async (t) => {
  const dataDir = await folder(t)
  const token = mint()
  await live(dataDir, token, (enrollment) => {
    assert.equal(enrollment.proof().token, token)
    assert.ok('fingerprint' in enrollment.pin())
    enrollment.welcomed(welcome(1))
    assert.deepEqual(enrollment.proof(), {
      orgId: 'org_1',
      certificate: new Uint8Array(Buffer.from('certificate')),
      identityGeneration: 1,
      epochSeen: 1,
      generationSeen: 0,
    })
    assert.deepEqual(enrollment.pin(), { publicKey: root.publicKey })
  })
  for (const name of await readdir(dataDir, { recursive: true, withFileTypes: true }))
    if (name.isFile()) {
      const text = await readFile(join(name.parentPath, name.name), 'latin1')
      assert.equal(text.includes(token.slice(6)), false, name.name)
    }
})

test('ND-4 a restart finds the same key, without a token or with the one it was started with', async (t) => {
  const dataDir = await folder(t)
  const token = mint()
  const key = await live(dataDir, token, (enrollment) => {
    enrollment.welcomed(welcome(4))
    return enrollment.identity.publicKey
  })
  for (const again of [undefined, token])
    await live(dataDir, again, (enrollment) => {
      assert.equal(enrollment.identity.publicKey, key)
      assert.equal(enrollment.proof().token, undefined)
      assert.equal(enrollment.proof().epochSeen, 4)
    })
})

test('ND-4 a crash between REGISTER and its welcome presents the same key again', async (t) => {
  const dataDir = await folder(t)
  const token = mint()
  const first = await live(dataDir, token, ({ identity }) => identity.publicKey)
  const second = await live(dataDir, token, ({ identity }) => identity.publicKey)
  assert.equal(first, second)
})

test('ND-5 a new token gets a new key; at its welcome the old key is removed', async (t) => {
  const dataDir = await folder(t)
  const old = await live(dataDir, mint(), (enrollment) => {
    enrollment.welcomed(welcome(1))
    return enrollment.identity.publicKey
  })
  await live(dataDir, mint(), async (enrollment) => {
    assert.notEqual(enrollment.identity.publicKey, old)
    const proof = enrollment.proof()
    assert.equal(proof.orgId, 'org_1')
    assert.deepEqual(
      [proof.identityGeneration, proof.epochSeen, proof.certificate],
      [0, 0, undefined],
    )
    enrollment.welcomed(welcome(2, 2))
    await removed(join(dataDir, 'keys'))
  })
})

async function removed(keys: string): Promise<void> {
  for (let tries = 0; (await readdir(keys)).length > 1; tries++) {
    assert.ok(tries < 200, 'the old key stays')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

test('ND-4 the key file is readable by its owner alone; a lost one is named with what to do', async (t) => {
  const dataDir = await folder(t)
  await live(dataDir, mint(), (enrollment) => enrollment.welcomed(welcome(1)))
  const [name = ''] = await readdir(join(dataDir, 'keys'))
  assert.equal((await stat(join(dataDir, 'keys', name))).mode & 0o777, 0o600)
  await rm(join(dataDir, 'keys', name))
  assert.equal(await reasonOf(live(dataDir, undefined, () => {})), 'KEY_MISSING')
})

test('ND-4 one agent a folder: a second is refused and says so', async (t) => {
  const dataDir = await folder(t)
  await live(dataDir, mint(), async () => {
    assert.equal(await reasonOf(live(dataDir, mint(), () => {})), 'DATA_DIR_IN_USE')
  })
  await live(dataDir, mint(), () => {})
})

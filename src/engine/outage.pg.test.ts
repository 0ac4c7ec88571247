// The store goes away under a running engine and comes back (OP-9). A proxy stands between the engine and Postgres.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, connect as dial, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { connect, type Store } from '#store/connect.ts'
import { testTarget } from '#store/test-database.ts'
import { makeWorld } from '#test/world.ts'

type Cut = { db: Store; away: () => Promise<void>; back: () => Promise<void> }

/** A store that can be cut off. */
async function cuttable(t: TestContext): Promise<Cut> {
  const target = await testTarget(t)
  const url = 'url' in target ? new URL(target.url) : undefined
  const folder = await mkdtemp(join(tmpdir(), 'clutch-cut-'))
  const socket = join(folder, '.s.PGSQL.5432')
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = url
      ? dial(Number(url.port || '5432'), url.hostname)
      : dial(join('host' in target ? target.host : '', '.s.PGSQL.5432'))
    for (const one of [near, far]) {
      sockets.add(one)
      one.once('close', () => sockets.delete(one)).on('error', () => undefined)
    }
    near.pipe(far).pipe(near)
    near.once('close', () => far.destroy())
    far.once('close', () => near.destroy())
  })
  const back = (): Promise<void> => new Promise((resolve) => server.listen(socket, () => resolve()))
  const away = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    for (const one of sockets) one.destroy()
    await closed
  }
  await back()
  const db = connect(
    'host' in target
      ? { ...target, host: folder }
      : {
          host: folder,
          user: decodeURIComponent(url?.username ?? ''),
          database: url?.pathname.slice(1) ?? '',
        },
    { max: 4, connectTimeoutMs: 2_000 },
  )
  t.after(async () => {
    await db.destroy()
    if (server.listening) await away()
    await rm(folder, { recursive: true, force: true })
  })
  return { db, away, back }
}

test('OP-9 with the store away writes and reads say store_unavailable, cached keys are known, and all comes back', async (t) => {
  const { db, away, back } = await cuttable(t)
  const world = await makeWorld(t, { db })
  const owner = await world.signUpOwner()
  const key = { 'x-api-key': await world.orgKey('admin') }
  const cookie = { cookie: owner.cookie }
  const person = { email: owner.email, password: owner.password }
  const calls: [string, Parameters<typeof world.fetch>[1], number][] = [
    ['/v1/whoami', { headers: key }, 200],
    ['/v1/whoami', { headers: cookie }, 503],
    ['/v1/whoami', { headers: { 'x-api-key': 'clt_k_never_seen' } }, 503],
    ['/v1/nodes?orgId=platform', { headers: key }, 503],
    [
      '/v1/nodes',
      { body: { orgId: 'platform', nodeId: 'a', trustTier: 'secure' }, headers: key },
      503,
    ],
    ['/api/auth/sign-in/email', { body: person }, 503],
    ['/setup', { body: { token: 'x', name: 'x', ...person } }, 503],
    ['/ready', {}, 503],
    ['/health', {}, 200],
    ['/sign-in', {}, 200],
  ]
  for (const round of ['before', 'after'] as const) {
    for (const [path, init, status] of calls.slice(0, 2)) {
      assert.equal((await world.fetch(path, init)).status, 200, `${round} ${path} ${status}`)
    }
    if (round === 'after') break
    await away()
    for (const [path, init, status] of calls) {
      const response = await world.fetch(path, init)
      const text = await response.text()
      assert.equal(response.status, status, `${path}: ${text}`)
      if (status === 503 && path !== '/ready')
        assert.match(text, /"reason":"store_unavailable"/, path)
    }
    await back()
  }
  const nodes = await world.client(key['x-api-key']).compute.nodes.list({ orgId: 'platform' })
  assert.deepEqual(nodes.nodes, [], 'what was refused was not done')
})

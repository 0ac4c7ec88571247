// A database that can be cut off from who uses it: a proxy stands between. Its connections break, and new ones are refused.
import { mkdtemp, rm } from 'node:fs/promises'
import { connect as dial, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { StoreTarget } from '#store/connect.ts'
import { testTarget } from '#store/test-database.ts'

export type Cuttable = {
  target: StoreTarget
  /** Past the proxy. */
  direct: StoreTarget
  away: () => Promise<void>
  back: () => Promise<void>
}

export async function cuttable(t: TestContext): Promise<Cuttable> {
  const direct = await testTarget(t)
  const url = 'url' in direct ? new URL(direct.url) : undefined
  const folder = await mkdtemp(join(tmpdir(), 'clutch-cut-'))
  const socket = join(folder, '.s.PGSQL.5432')
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = url
      ? dial(Number(url.port || '5432'), url.hostname)
      : dial(join('host' in direct ? direct.host : '', '.s.PGSQL.5432'))
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
  t.after(async () => {
    if (server.listening) await away()
    await rm(folder, { recursive: true, force: true })
  })
  const target =
    'host' in direct
      ? { ...direct, host: folder }
      : {
          host: folder,
          user: decodeURIComponent(url?.username ?? ''),
          database: url?.pathname.slice(1) ?? '',
        }
  return { target, direct, away, back }
}

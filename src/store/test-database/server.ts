// The test server of this user: found, or started by way of its warden.
import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { systemClock } from '#lib/clock.ts'
import type { StoreTarget } from '#store/connect.ts'
import { type FileLock, lockFile } from '#store/files/lock.ts'

const START_TIMEOUT_MS = 60_000
const POLL_MS = 25

export const Ready = z.object({ pid: z.number(), host: z.string(), user: z.string() })

/** The folder of this user's test server. Not in the checkout: other users must be able to walk to it. */
export function testFolder(): string {
  const uid = process.getuid?.() ?? 0
  const folder = join(tmpdir(), `clutch-test-${uid}`)
  mkdirSync(folder, { recursive: true, mode: 0o711 })
  if (statSync(folder).uid !== uid) throw new Error(`${folder} belongs to somebody else`)
  return folder
}

/** Held until this process ends: while any process holds it, the server stays. */
let using: FileLock | undefined

export async function sharedServer(): Promise<StoreTarget> {
  const folder = testFolder()
  const inUse = await eventually(START_TIMEOUT_MS, async () => {
    using ??= lockFile(join(folder, 'users'), { shared: true })
    return using !== undefined
  })
  if (!inUse) throw new Error(`the test server in ${folder} does not finish stopping`)
  let warden: { failed(): boolean } | undefined
  let target: StoreTarget | undefined
  await eventually(START_TIMEOUT_MS, async () => {
    const free = lockFile(join(folder, 'warden'))
    free?.release()
    if (free && (warden === undefined || warden.failed())) warden = startWarden(folder)
    target = free ? undefined : readReady(folder)
    return target !== undefined
  })
  if (target) return target
  const log = readFileSync(join(folder, 'warden.log'), 'utf8').slice(-2000)
  throw new Error(`the test server in ${folder} does not start:\n${log}`)
}

function readReady(folder: string): StoreTarget | undefined {
  try {
    const ready = Ready.parse(JSON.parse(readFileSync(join(folder, 'ready.json'), 'utf8')))
    process.kill(ready.pid, 0) // a note of a warden that was killed does not count
    return { host: ready.host, user: ready.user, database: 'postgres' }
  } catch {
    return undefined
  }
}

function startWarden(folder: string): { failed(): boolean } {
  const log = openSync(join(folder, 'warden.log'), 'a', 0o600)
  const child = spawn(process.execPath, [join(import.meta.dirname, 'warden.ts')], {
    cwd: '/',
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  child.unref()
  return { failed: () => child.exitCode !== null || child.signalCode !== null }
}

/** Asks until it is so; false when it was not in time. */
export async function eventually(withinMs: number, test: () => Promise<boolean>): Promise<boolean> {
  const deadline = systemClock.monotonic() + withinMs
  for (;;) {
    if (await test()) return true
    if (systemClock.monotonic() > deadline) return false
    await systemClock.sleep(POLL_MS)
  }
}

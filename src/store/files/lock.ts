// A lock that the kernel lets go of when its holder dies, however it dies.
// SQLite's own file locks (fcntl) are held by the process: a kill -9 frees them, a recycled pid cannot hold them, and no
// file has to be judged stale. Node offers no lock of its own. A note beside the lock says who holds it, for the message.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { z } from 'zod'

export type FileLock = { release(): void }

/** SQLITE_BUSY, https://www.sqlite.org/rescode.html */
const BUSY = 5

/**
 * Locks `path` (made when missing), or returns undefined when another has it. `shared` locks agree with each other.
 * Waits up to `waitMs`, blocking the thread. The path must be on a local file system.
 */
export function lockFile(
  path: string,
  { shared = false, waitMs = 0 }: { shared?: boolean; waitMs?: number } = {},
): FileLock | undefined {
  const database = new DatabaseSync(path, { timeout: waitMs })
  try {
    // No journal file: nothing is ever written. A reader's lock needs a statement that reads.
    database.exec('pragma journal_mode = memory')
    database.exec(shared ? 'begin; select * from sqlite_schema' : 'begin exclusive')
  } catch (error) {
    database.close()
    if (error instanceof Error && 'errcode' in error && error.errcode === BUSY) return undefined
    throw error
  }
  return { release: () => database.close() }
}

const Holder = z.object({ program: z.string(), pid: z.number(), since: z.string() })
export type Holder = z.infer<typeof Holder>

/** Writes who holds the lock at `path`. */
export function writeHolder(path: string, holder: Holder): void {
  writeFileSync(`${path}.json`, `${JSON.stringify(holder)}\n`, { mode: 0o600 })
}

export function readHolder(path: string): Holder | undefined {
  try {
    return Holder.parse(JSON.parse(readFileSync(`${path}.json`, 'utf8')))
  } catch {
    return undefined // taken a moment ago, or never
  }
}

export function removeHolder(path: string): void {
  rmSync(`${path}.json`, { force: true })
}

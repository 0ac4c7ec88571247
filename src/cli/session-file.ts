// ~/.ccp/session.json (CP-9): who this person is at each engine, by its address.
// 1. The file is 0600 in a 0700 folder, and is replaced as a whole: a reader sees the old or the new one.
// 2. A file that cannot be read as one is an error, never an empty list: signing in again must be a decision.
import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError } from '#lib/error.ts'

export type SessionContext = {
  token: string
  /** 'Ada Lovelace', for people. */
  name: string
  /** Chosen by `ccp auth use`. */
  orgId: string | null
  savedAt: string
}
export type SessionFile = {
  version: 1
  /** The address that is used when CCP_API_URL is not set. */
  current: string | null
  contexts: Record<string, SessionContext>
}

export const sessionPath = (home: string): string => join(home, '.ccp', 'session.json')

/** Errors: INVALID_STATE `SESSION_FILE`. */
export async function readSession(home: string): Promise<SessionFile> {
  const path = sessionPath(home)
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined
    throw unreadable(path, error)
  })
  if (text === undefined) return { version: 1, current: null, contexts: {} }
  try {
    return await parse(JSON.parse(text))
  } catch (error) {
    throw unreadable(path, error)
  }
}

/** zod is loaded here and not above: most runs of `ccp` have no such file. */
async function parse(value: unknown): Promise<SessionFile> {
  const { z } = await import('zod')
  const context = z.object({
    token: z.string().min(1),
    name: z.string(),
    orgId: z.string().nullable(),
    savedAt: z.string(),
  })
  return z
    .object({
      version: z.literal(1),
      current: z.string().nullable(),
      contexts: z.record(z.string(), context),
    })
    .parse(value)
}

export async function writeSession(home: string, file: SessionFile): Promise<void> {
  const path = sessionPath(home)
  await mkdir(join(home, '.ccp'), { recursive: true, mode: 0o700 })
  const draft = `${path}.${process.pid}.part`
  try {
    await writeFile(draft, `${JSON.stringify(file, undefined, 2)}\n`, { mode: 0o600 })
    await chmod(draft, 0o600)
    await rename(draft, path)
  } finally {
    await rm(draft, { force: true })
  }
}

const unreadable = (path: string, cause: unknown): AppError =>
  new AppError('INVALID_STATE', `${path} cannot be read as a session file`, {
    cause,
    details: { reason: 'SESSION_FILE', next: `Remove ${path} and sign in again: ccp auth login` },
  })

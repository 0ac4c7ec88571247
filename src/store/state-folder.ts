// Where a program keeps what must survive it (D20).
// 1. The folder itself is 0711: the postgres user has to walk through it to its own part. `postgres/` and `secrets/` are
//    0700; `runtime/` is 0755, because other users execute what is in it.
// 2. One engine a folder: a second is refused with the name of the first.
import { chmod, mkdir, readdir, readFile, realpath, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Random } from '#lib/random.ts'
import { createFile } from '#store/files/create.ts'
import { lockFile, readHolder, removeHolder, writeHolder } from '#store/files/lock.ts'

export type StateFolder = {
  root: string
  /** Owned by the user that runs Postgres. */
  postgres: string
  /** The keyring, unless CLUTCH_KEYRING names another. */
  secrets: string
  blobs: string
  /** Node, Postgres and child code for other users to execute; by version. */
  runtime: string
}

export type Place = {
  /** The value of CLUTCH_HOME, or undefined. */
  clutchHome: string | undefined
  /** The person's home folder. */
  home: string
  uid: number
}

/** The state folder's path: CLUTCH_HOME, else /var/lib/clutch for root, else ~/.local/state/clutch. */
export function statePath({ clutchHome, home, uid }: Place): string {
  if (clutchHome !== undefined && clutchHome !== '') return resolve(clutchHome)
  return uid === 0 ? '/var/lib/clutch' : join(home, '.local/state/clutch')
}

/**
 * Makes what is missing, with the right modes. A folder that was there keeps its mode, unless it is closed to others and
 * plainly ours: CLUTCH_HOME may name anything. Errors: INVALID_STATE `STATE_FOLDER`, `STATE_FOLDER_OPEN`.
 */
export async function openStateFolder(path: string): Promise<StateFolder> {
  try {
    const made = await mkdir(path, { recursive: true, mode: 0o711 })
    const root = await realpath(path)
    const folder: StateFolder = {
      root,
      postgres: join(root, 'postgres'),
      secrets: join(root, 'secrets'),
      blobs: join(root, 'blobs'),
      runtime: join(root, 'runtime'),
    }
    await walkable(root, made !== undefined)
    for (const [at, mode] of [
      [folder.postgres, 0o700],
      [folder.secrets, 0o700],
      [folder.blobs, 0o700],
      [folder.runtime, 0o755],
    ] as const) {
      await mkdir(at, { recursive: true, mode })
      await chmod(at, mode)
    }
    return folder
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError('INVALID_STATE', `The state folder ${path} cannot be used`, {
      cause: error,
      details: {
        reason: 'STATE_FOLDER',
        next: 'Set CLUTCH_HOME to a folder of your own, on a disk with room',
      },
    })
  }
}

async function walkable(root: string, made: boolean): Promise<void> {
  const { mode } = await stat(root)
  if (made) return chmod(root, 0o711)
  if ((mode & 0o002) !== 0)
    throw new AppError('INVALID_STATE', `The state folder ${root} can be written by everybody`, {
      details: {
        reason: 'STATE_FOLDER_OPEN',
        next: 'Set CLUTCH_HOME to a folder that only you can write, such as /var/lib/clutch',
      },
    })
  const entries = await readdir(root)
  const ours = entries.length === 0 || entries.includes('secrets')
  if ((mode & 0o001) === 0 && ours) await chmod(root, 0o711)
}

export type StateLock = { release(): void }

/**
 * Takes the folder for this process until `release` or its death. Errors: INVALID_STATE `STATE_FOLDER_IN_USE`, with
 * `pid` and `since` (ISO 8601) of the holder in the details.
 */
export function lockStateFolder(
  folder: StateFolder,
  { clock, program }: { clock: Clock; program: string },
): StateLock {
  const path = join(folder.root, 'lock')
  const lock = lockFile(path)
  if (lock === undefined) {
    const holder = readHolder(path)
    const who = holder
      ? `${holder.program}, pid ${holder.pid}, running since ${holder.since}`
      : 'a program that is just starting'
    throw new AppError('INVALID_STATE', `The state folder ${folder.root} is in use by ${who}`, {
      details: {
        reason: 'STATE_FOLDER_IN_USE',
        next: 'Stop that one first, or set CLUTCH_HOME to another folder',
        ...holder,
      },
    })
  }
  writeHolder(path, { program, pid: process.pid, since: new Date(clock.now()).toISOString() })
  return {
    release() {
      removeHolder(path)
      lock.release()
    },
  }
}

/**
 * The first folder on the way to `path` that other users cannot walk through, or undefined. As root Postgres runs as
 * another user, which has to reach its data.
 */
export async function firstClosedParent(path: string): Promise<string | undefined> {
  const parts = resolve(path).split('/')
  for (let length = 1; length <= parts.length; length++) {
    const at = parts.slice(0, length).join('/') || '/'
    if (((await stat(at)).mode & 0o001) === 0) return at
  }
  return undefined
}

/** This engine's own id: made at its first start on this folder, the same ever after. */
export async function engineIdOf(
  folder: StateFolder,
  { clock, random }: { clock: Clock; random: Random },
): Promise<string> {
  const path = join(folder.root, 'engine-id')
  const text = `${newId('eng', clock.now(), random)}\n`
  await createFile(path, text, random, { unlessThere: true })
  const id = (await readFile(path, 'utf8')).trim()
  if (/^eng_[0-9a-z]{26}$/.test(id)) return id
  throw new AppError('INVALID_STATE', `${path} does not hold an engine's id`, {
    details: { reason: 'ENGINE_ID', next: `Remove it: a new one is made` },
  })
}

// Stored bytes by their SHA-256, in a local folder: `<first two digits>/<the rest>`.
// 1. A name is the hash of what it names, taken while the bytes arrive. What has a name is complete and flushed.
// 2. Whoever deletes makes sure that nothing names the bytes any more; `put` of bytes that are there renews their time.
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { sha256Hex } from '#lib/bytes.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import { syncFolder } from '#store/files/create.ts'

/** Lower-case hex, 64 digits. */
export type Sha256 = string

export type Blobs = {
  /**
   * Stores bytes and returns their hash. With `sha256` other bytes are refused (INVALID `BLOB_HASH`); with more than
   * `bytesMax` nothing is kept (TOO_LARGE `BLOB_SIZE`). A full disk is UNAVAILABLE `BLOBS_FULL`.
   */
  put(source: Uint8Array | AsyncIterable<Uint8Array>, limits?: PutLimits): Promise<Blob>
  /** All of it, checked against its name (INTERNAL `BLOB_DAMAGED`), or undefined. */
  get(sha256: Sha256): Promise<Buffer | undefined>
  /** A stream from `offset` on, not checked: the receiver hashes. */
  read(sha256: Sha256, offset?: number): Promise<{ bytes: number; stream: Readable } | undefined>
  has(sha256: Sha256): Promise<boolean>
  /** True if it was there. */
  delete(sha256: Sha256): Promise<boolean>
}

export type Blob = { sha256: Sha256; bytes: number }
export type PutLimits = { bytesMax?: number; sha256?: Sha256 }

/** Without a limit of the caller's own. */
const BYTES_MAX = 4 * 1024 ** 3
/** What a killed program left behind; nothing arrives for this long. */
const DRAFT_AGE_MAX_MS = 24 * 3_600_000

export async function openBlobs(
  folder: string,
  { clock, random }: { clock: Clock; random: Random },
): Promise<Blobs> {
  const drafts = join(folder, 'arriving')
  await mkdir(drafts, { recursive: true, mode: 0o700 })
  await removeOld(drafts, clock.now() - DRAFT_AGE_MAX_MS)
  const pathOf = (sha256: Sha256): string => {
    if (!/^[0-9a-f]{64}$/.test(sha256))
      throw new Error(`${JSON.stringify(sha256)} is not a SHA-256`)
    return join(folder, sha256.slice(0, 2), sha256.slice(2))
  }
  return {
    async put(source, limits = {}) {
      const draft = join(drafts, Buffer.from(random.bytes(12)).toString('hex'))
      try {
        const blob = await receive(draft, source, limits)
        const path = pathOf(blob.sha256)
        if ((await stat(path).catch(() => undefined))?.size === blob.bytes) {
          const now = new Date(clock.now())
          await utimes(path, now, now)
          return blob
        }
        const parent = join(folder, blob.sha256.slice(0, 2))
        await mkdir(parent, { recursive: true, mode: 0o700 })
        await rename(draft, path)
        await syncFolder(parent)
        return blob
      } catch (error) {
        throw told(error)
      } finally {
        await rm(draft, { force: true })
      }
    },
    async get(sha256) {
      const bytes = await unlessMissing(readFile(pathOf(sha256)))
      if (bytes && sha256Hex(bytes) !== sha256)
        throw new AppError('INTERNAL', `The stored bytes ${sha256} are damaged`, {
          details: { reason: 'BLOB_DAMAGED', next: 'Restore the blobs from a backup' },
        })
      return bytes
    },
    async read(sha256, offset = 0) {
      const path = pathOf(sha256)
      const found = await unlessMissing(stat(path))
      return found && { bytes: found.size, stream: createReadStream(path, { start: offset }) }
    },
    has: async (sha256) => (await unlessMissing(stat(pathOf(sha256)))) !== undefined,
    delete: async (sha256) => (await unlessMissing(rm(pathOf(sha256)).then(() => true))) === true,
  }
}

async function receive(
  draft: string,
  source: Uint8Array | AsyncIterable<Uint8Array>,
  { bytesMax = BYTES_MAX, sha256 }: PutLimits,
): Promise<Blob> {
  const hash = createHash('sha256')
  let bytes = 0
  const file = await open(draft, 'wx', 0o600)
  try {
    for await (const chunk of source instanceof Uint8Array ? [source] : source) {
      bytes += chunk.length
      if (bytes > bytesMax)
        throw new AppError('TOO_LARGE', `There are more than ${bytesMax} bytes`, {
          details: { reason: 'BLOB_SIZE', bytesMax },
        })
      hash.update(chunk)
      await file.writeFile(chunk)
    }
    await file.sync()
  } finally {
    await file.close()
  }
  const made = hash.digest('hex')
  if (sha256 !== undefined && sha256 !== made)
    throw new AppError(
      'INVALID',
      `The bytes that arrived have the SHA-256 ${made}, not ${sha256}`,
      {
        details: { reason: 'BLOB_HASH', next: 'Send them again' },
      },
    )
  return { sha256: made, bytes }
}

async function removeOld(drafts: string, before: number): Promise<void> {
  for (const name of await readdir(drafts)) {
    const path = join(drafts, name)
    const found = await unlessMissing(stat(path))
    if (found && found.mtimeMs < before) await rm(path, { force: true })
  }
}

function told(error: unknown): unknown {
  if (!(error instanceof Error && 'code' in error)) return error
  if (error.code !== 'ENOSPC' && error.code !== 'EDQUOT') return error
  return new AppError('UNAVAILABLE', 'The disk that holds the blobs is full', {
    cause: error,
    details: { reason: 'BLOBS_FULL', next: 'Free some room, then try again' },
  })
}

async function unlessMissing<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

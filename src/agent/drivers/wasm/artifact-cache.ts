// Prepared functions on this node's disk, by the SHA-256 of their bytes.
//
// Invariants
// 1. A file in the cache is whole and has the hash of its name: it is hashed as it arrives and renamed at its end.
// 2. One transfer a digest: it is announced when `write` is called, before its first byte; who asks for one that is
//    under way waits for it, and takes it over if it fails. Should two end, one counts.
// 3. The cache holds `bytesMax`; the one used longest ago goes first.
import { createHash } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError } from '#lib/error.ts'

export const CACHE_BYTES_MAX = 2 * 1024 ** 3
const NAME = /^[0-9a-f]{64}$/

export type ArtifactId = { sha256: string; bytes: number }

export class ArtifactCache {
  readonly #folder: string
  readonly #bytesMax: number
  /** In the order of use, the longest ago first. */
  readonly #sizes = new Map<string, number>()
  readonly #arriving = new Map<string, Promise<void>>()
  #bytes = 0
  #drafts = 0

  private constructor(folder: string, bytesMax: number) {
    this.#folder = folder
    this.#bytesMax = bytesMax
  }

  static async open(dataDir: string, bytesMax = CACHE_BYTES_MAX): Promise<ArtifactCache> {
    const cache = new ArtifactCache(join(dataDir, 'artifacts'), bytesMax)
    await cache.#load()
    return cache
  }

  has(sha256: string): boolean {
    return this.#sizes.has(sha256)
  }

  /** The transfer of this digest that is under way, if any; it never rejects. */
  arriving(sha256: string): Promise<void> | undefined {
    return this.#arriving.get(sha256)
  }

  /** The bytes, or undefined when they are not here (any more). */
  async read(sha256: string): Promise<Uint8Array | undefined> {
    const size = this.#sizes.get(sha256)
    if (size === undefined) return undefined
    this.#sizes.delete(sha256)
    this.#sizes.set(sha256, size)
    try {
      return await readFile(join(this.#folder, sha256))
    } catch {
      this.#forget(sha256)
      return undefined
    }
  }

  /** Takes an artifact in. Rejects INVALID `ARTIFACT_WRONG` when size or hash are not the announced ones. */
  async write(id: ArtifactId, chunks: AsyncIterable<Uint8Array>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#arriving.set(id.sha256, promise)
    try {
      await this.#take(id, chunks)
    } finally {
      if (this.#arriving.get(id.sha256) === promise) this.#arriving.delete(id.sha256)
      resolve()
    }
  }

  async #take(id: ArtifactId, chunks: AsyncIterable<Uint8Array>): Promise<void> {
    if (!NAME.test(id.sha256) || id.bytes > this.#bytesMax)
      throw wrong(`it has ${id.bytes} bytes, and the cache of this node holds ${this.#bytesMax}`)
    const draft = join(this.#folder, `draft-${this.#drafts++}`)
    const file = await open(draft, 'w', 0o600)
    try {
      const hash = createHash('sha256')
      let size = 0
      for await (const chunk of chunks) {
        size += chunk.length
        if (size > id.bytes) throw wrong(`more than the announced ${id.bytes} bytes came`)
        hash.update(chunk)
        await file.write(chunk)
      }
      if (size !== id.bytes) throw wrong(`${size} of the announced ${id.bytes} bytes came`)
      if (hash.digest('hex') !== id.sha256) throw wrong('its bytes do not have the announced hash')
      await file.close()
      await this.#makeRoom(id.bytes)
      await rename(draft, join(this.#folder, id.sha256))
      this.#forget(id.sha256)
      this.#sizes.set(id.sha256, id.bytes)
      this.#bytes += id.bytes
    } catch (error) {
      await file.close().catch(() => undefined)
      await rm(draft, { force: true })
      throw error
    }
  }

  async #load(): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const found: { name: string; size: number; at: number }[] = []
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name)
      // Drafts are of a process that is gone.
      if (!NAME.test(name)) await rm(path, { force: true, recursive: true })
      else {
        const { size, mtimeMs } = await stat(path)
        found.push({ name, size, at: mtimeMs })
      }
    }
    for (const { name, size } of found.toSorted((a, b) => a.at - b.at)) {
      this.#sizes.set(name, size)
      this.#bytes += size
    }
    await this.#makeRoom(0)
  }

  async #makeRoom(bytes: number): Promise<void> {
    for (const sha256 of this.#sizes.keys()) {
      if (this.#bytes + bytes <= this.#bytesMax) return
      this.#forget(sha256)
      await rm(join(this.#folder, sha256), { force: true })
    }
  }

  #forget(sha256: string): void {
    this.#bytes -= this.#sizes.get(sha256) ?? 0
    this.#sizes.delete(sha256)
  }
}

const wrong = (why: string): AppError =>
  new AppError('INVALID', `the artifact was refused: ${why}`, {
    details: { reason: 'ARTIFACT_WRONG' },
  })

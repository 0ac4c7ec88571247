// Preparing components, and finding what was prepared.
// 1. Preparations take their turns, by organization (turns.ts).
// 2. Equal preparations at one time are one.
// 3. Bytes are in the blob store before a row names them, and a row is believed only while its bytes are there.
import type { Readable } from 'node:stream'
import { PREPARE_DEADLINE_MS } from '#core/function/limits.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import type { Blobs } from '#store/blobs.ts'
import { type ArtifactRow, findArtifact, saveArtifact } from '#store/functions/components.ts'
import type { Store, Tx } from '#store/connect.ts'
import { PREPARER, type PrepareOutcome } from '#wasm/prepare.ts'
import { Turns, type TurnsSpec } from '#engine/turns.ts'

export type Prepare = (
  bytes: Uint8Array,
  options: { memMb: number; deadlineMs: number },
) => Promise<PrepareOutcome>

/** The guest's cap, and whose preparation it is. */
export type For = { memMb: number; orgId: string }

/** A component that was sent ahead: its bytes are in the blob store already, and are read when its turn comes. */
export type Stored = { sha256: string; sizeBytes: number }

export type Prepared = {
  componentSha256: string
  sizeBytes: number
  artifact: ArtifactRow
  /** Writes the rows that name the bytes, in the caller's transaction. */
  save(tx: Tx, now: Date): Promise<void>
}

export class Artifacts {
  readonly #deps: { db: Store; blobs: Blobs; prepare: Prepare }
  readonly #running = new Map<string, Promise<ArtifactRow>>()
  readonly #line = new Turns(PREPARING)

  constructor(deps: { db: Store; blobs: Blobs; prepare: Prepare }) {
    this.#deps = deps
  }

  /** Prepares what is deployed. Refusals: INVALID with the preparer's reason; nothing is stored then. */
  async deploy(component: Uint8Array | Stored, { memMb, orgId }: For): Promise<Prepared> {
    const { blobs } = this.#deps
    const bytes = component instanceof Uint8Array ? component : undefined
    const { sha256: componentSha256, sizeBytes } =
      component instanceof Uint8Array
        ? { sha256: sha256Hex(component), sizeBytes: component.length }
        : component
    const artifact =
      (await this.#found(componentSha256, memMb)) ??
      (await this.#once(
        componentSha256,
        { memMb, orgId },
        async () => bytes ?? this.#stored(componentSha256),
      ))
    if (bytes) await blobs.put(bytes, { sha256: componentSha256 })
    return {
      componentSha256,
      sizeBytes,
      artifact,
      save: async (tx, now) => {
        const key = { componentSha256, preparer: PREPARER, memMb }
        await saveArtifact(tx, key, { artifact, componentBytes: sizeBytes, now })
        // Unused bytes may have been removed until the rows above were locked.
        if (bytes && !(await blobs.has(componentSha256))) await blobs.put(bytes)
        for (const sha256 of [componentSha256, artifact.sha256])
          if (!(await blobs.has(sha256))) throw removed()
      },
    }
  }

  /** Prepares anew what was deployed before this engine's preparer was known, and records it. */
  async again(
    version: { componentSha256: string; sizeBytes: number } & For,
    now: Date,
  ): Promise<ArtifactRow> {
    const { db } = this.#deps
    const { componentSha256, memMb } = version
    const artifact = await this.#once(componentSha256, version, () => this.#stored(componentSha256))
    const key = { componentSha256, preparer: PREPARER, memMb }
    await saveArtifact(db, key, { artifact, componentBytes: version.sizeBytes, now })
    return artifact
  }

  /** The artifact's bytes, to send. */
  async read(sha256: string): Promise<Readable> {
    const found = await this.#deps.blobs.read(sha256)
    if (!found) throw missing(sha256)
    return found.stream
  }

  async #stored(sha256: string): Promise<Uint8Array> {
    const bytes = await this.#deps.blobs.get(sha256)
    if (!bytes) throw missing(sha256)
    return bytes
  }

  async #found(componentSha256: string, memMb: number): Promise<ArtifactRow | undefined> {
    const { db, blobs } = this.#deps
    const known = await findArtifact(db, { componentSha256, preparer: PREPARER, memMb })
    return known && (await blobs.has(known.sha256)) ? known : undefined
  }

  #once(
    componentSha256: string,
    { memMb, orgId }: For,
    bytes: () => Promise<Uint8Array>,
  ): Promise<ArtifactRow> {
    const name = `${componentSha256} ${memMb}`
    const running = this.#running.get(name)
    if (running) return running
    const made = this.#line.inTurn(orgId, async () => this.#make(await bytes(), memMb))
    this.#running.set(name, made)
    const forget = (): void => void this.#running.delete(name)
    made.then(forget, forget)
    return made
  }

  async #make(bytes: Uint8Array, memMb: number): Promise<ArtifactRow> {
    const deadlineMs = PREPARE_DEADLINE_MS
    const outcome = await this.#deps.prepare(bytes, { memMb, deadlineMs })
    if (!outcome.ok) throw refusal(outcome)
    const blob = await this.#deps.blobs.put(outcome.artifact)
    return { sha256: blob.sha256, sizeBytes: blob.bytes, kind: outcome.kind }
  }
}

/** How long until a place in the line is free: about what one preparation takes. */
const RETRY_AFTER_MS = 2_000

const PREPARING: TurnsSpec = {
  // A preparation keeps one core busy and may take a gigabyte.
  places: 2,
  // Those that came inline hold their bytes while they wait: with FN-1's 8 MiB this is 128 MiB.
  waiting: 16,
  waitingOfOrg: 8,
  full: (count, own) =>
    new AppError(
      'UNAVAILABLE',
      `${count} components${own ? ' of this organization' : ''} are being prepared`,
      {
        details: {
          reason: 'PREPARING_FULL',
          retryAfterMs: RETRY_AFTER_MS,
          next: 'Deploy again in a few seconds',
        },
      },
    ),
}

/** Reasons that are the preparer's trouble, not the component's. */
const OURS = new Set(['PREPARER_TIMEOUT', 'PREPARER_MEMORY', 'PREPARER_FAILED'])

function refusal(outcome: { reason: string; message: string }): AppError {
  const { reason, message } = outcome
  const field = OURS.has(reason) ? message : `component: ${message}`
  return new AppError(reason === 'TOO_LARGE' ? 'TOO_LARGE' : 'INVALID', field, {
    details: { reason, field: 'component' },
  })
}

const removed = (): AppError =>
  new AppError('UNAVAILABLE', 'The prepared bytes were removed meanwhile', {
    details: { reason: 'ARTIFACT_REMOVED', retryAfterMs: 0, next: 'Deploy again' },
  })

const missing = (sha256: string): AppError =>
  new AppError('INTERNAL', `The stored bytes ${sha256} are missing`, {
    details: { reason: 'BLOB_MISSING', next: 'Restore the blobs from a backup, or deploy again' },
  })

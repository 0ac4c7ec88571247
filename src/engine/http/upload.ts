// `POST /v1/components?orgId=` (FN-1): the raw bytes of a component, ahead of a deploy that names them by their hash.
// 1. Nothing of the body is read before the caller is known and has a place; nothing is stored before the first eight
//    bytes are those of a WASM binary (000-51).
// 2. The bytes stream into the blob store: an upload costs a few pieces of memory, however large it is.
// 3. A client that sends too slowly loses its place: nobody holds one by doing nothing. Only the time counts in which it
//    was asked for more, and the whole is bounded.
// 4. UPLOADS_AT_ONCE at once, one of an org: each is a disk's and a connection's work. Who waits is not read.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { orgInput } from '#api/base.ts'
import { deploy as contract } from '#api/functions.ts'
import { UPLOAD_BYTES_MAX, UPLOADS_AT_ONCE } from '#core/function/limits.ts'
import { formatBytes } from '#lib/bytes.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { transaction } from '#store/connect.ts'
import { forgetUnused } from '#store/functions/components.ts'
import { saveUpload } from '#store/functions/uploads.ts'
import { checkMagic } from '#wasm/check.ts'
import { authorize, resolveCaller } from '#engine/caller.ts'
import type { Engine } from '#engine/engine.ts'
import { limitRate, type HttpContext } from '#engine/kernel.ts'
import { invalidInput } from '#engine/kernel-errors.ts'
import { textFaults } from '#engine/kernel-text.ts'
import { sendJson } from '#engine/http/answer.ts'
import { methodNotAllowed } from '#engine/http/fn.ts'
import { RequestBody } from '#engine/http/request-body.ts'
import { Turns } from '#engine/turns.ts'

export const UPLOAD_PATH = '/v1/components'

/** In each such time at least so much must come. */
export const PROGRESS_MS = 30_000
const PROGRESS_BYTES = 1024 * 1024
/** 64 MiB on a line of 1 Mbit/s. */
const UPLOAD_MS_MAX = 10 * 60_000
/** How long a client waits for its turn, as other large bodies do: a proxy's patience is longer. */
const TURN_MS = 10_000
/** 8 MiB on a line of 10 Mbit/s. */
const RETRY_AFTER_MS = 7_000
/** Magic and version. */
const PREAMBLE_BYTES = 8
/** How long a client may go on sending after its upload was refused. */
const UNREAD_MS = 1_000
const TYPES = ['application/octet-stream', 'application/wasm']

export type UploadExchange = {
  req: IncomingMessage
  res: ServerResponse
  query: string
  patient: () => void
}

export type Uploads = { serve(exchange: UploadExchange, context: HttpContext): Promise<void> }

export function createUploads(): Uploads {
  // Each that waits costs its socket.
  const turns = new Turns({ places: UPLOADS_AT_ONCE, waiting: 64, waitingOfOrg: 16, full })
  return {
    async serve(exchange, context) {
      const { req, res } = exchange
      const { engine } = context
      if (req.method !== 'POST') return methodNotAllowed(res, 'POST')
      const orgId = await uploader(exchange, context)
      checkHead(req)
      exchange.patient()
      const gone = new AbortController()
      res.once('close', () => gone.abort(new Error('the client went away')))
      const patience = { clock: engine.clock, ms: TURN_MS, gone: gone.signal }
      const stored = await turns.inTurn(orgId, () => store(engine, orgId, req), patience)
      sendJson(res, 200, stored)
    },
  }
}

/** The org that may be sent to, by the same rules as a deploy. */
async function uploader({ query }: UploadExchange, context: HttpContext): Promise<string> {
  const { engine, headers } = context
  const caller = await resolveCaller(engine, headers)
  const parsed = orgInput.safeParse(Object.fromEntries(new URLSearchParams(query)))
  const faults = parsed.error?.issues ?? textFaults(parsed.data)
  if (!parsed.success || faults.length > 0) throw invalidInput(faults)
  const { meta } = contract['~orpc']
  const call = { procedure: `POST ${UPLOAD_PATH}`, meta, org: parsed.data.orgId }
  const { orgId } = await authorize(engine, caller, call)
  limitRate(engine, 'deploy', orgId)
  return orgId
}

/** What the head says already. */
function checkHead({ headers }: IncomingMessage): void {
  const type = headers['content-type']?.split(';')[0]?.trim().toLowerCase()
  if (type === undefined || !TYPES.includes(type))
    throw new AppError('INVALID', `The body is ${type ?? 'of no type'}; ${TYPES[0]} is needed`, {
      details: {
        reason: 'CONTENT_TYPE',
        next: `Send the bytes of the .wasm file with content-type: ${TYPES[0]}`,
      },
    })
  const declared = headers['content-length']
  if (declared !== undefined && Number(declared) > UPLOAD_BYTES_MAX)
    throw tooLarge(formatBytes(Number(declared)))
}

async function store(
  engine: Engine,
  orgId: string,
  req: IncomingMessage,
): Promise<{ sha256: string; sizeBytes: number }> {
  const { blobs, clock, db } = engine
  const body = new RequestBody(req)
  const cancel = clock.after(UPLOAD_MS_MAX, () => body.fail(tooLong()))
  const pieces = watched(body, clock)
  try {
    const head = await preamble(pieces)
    const kind = checkMagic(head) === 'component' ? 'component' : 'preview1'
    const { sha256, bytes: sizeBytes } = await blobs.put(whole(head, pieces))
    await transaction(db, async (tx) => {
      const now = new Date(clock.now())
      const displaced = await saveUpload(tx, { orgId, sha256, sizeBytes, kind, now })
      // Equal bytes that nobody used may have been removed until the rows above were locked.
      if (!(await blobs.has(sha256))) throw removed()
      // At once: who sends on and on would else fill the disk before the next pruning.
      for (const old of await forgetUnused(tx, displaced, now)) await blobs.delete(old)
    })
    return { sha256, sizeBytes }
  } finally {
    cancel()
    body.drop(UNREAD_MS, clock)
  }
}

/** The first pieces, with eight bytes at least unless there are no more. */
async function preamble(pieces: AsyncIterator<Uint8Array>): Promise<Buffer> {
  let head = Buffer.alloc(0)
  while (head.length < PREAMBLE_BYTES) {
    const next = await pieces.next()
    if (next.done === true) break
    head = Buffer.concat([head, next.value])
  }
  return head
}

async function* whole(
  head: Uint8Array,
  pieces: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  yield head
  let bytes = head.length
  for await (const piece of pieces) {
    bytes += piece.length
    if (bytes > UPLOAD_BYTES_MAX) throw tooLarge(`more than ${formatBytes(UPLOAD_BYTES_MAX)}`)
    yield piece
  }
}

/** The body's pieces; fails it when they come too slowly. What a slow disk of ours takes is not the client's time. */
async function* watched(body: RequestBody, clock: Clock): AsyncGenerator<Uint8Array> {
  let [bytes, left] = [0, PROGRESS_MS]
  for (;;) {
    const since = clock.monotonic()
    const cancel = clock.after(left, () => body.fail(stalled()))
    const next = await body.next().finally(cancel)
    if (next.done === true) return
    bytes += next.value.length
    left = Math.max(0, left - (clock.monotonic() - since))
    if (bytes >= PROGRESS_BYTES) [bytes, left] = [0, PROGRESS_MS]
    yield next.value
  }
}

const tooLarge = (size: string): AppError =>
  new AppError(
    'TOO_LARGE',
    `The component has ${size}; at most ${formatBytes(UPLOAD_BYTES_MAX)} are taken`,
    {
      details: {
        reason: 'COMPONENT_TOO_LARGE',
        field: 'component',
        bytesMax: UPLOAD_BYTES_MAX,
        next: 'Build it for size (-Os, wasm-opt) or strip its debug sections',
      },
    },
  )

const stalled = (): AppError =>
  new AppError(
    'INVALID',
    `Less than ${formatBytes(PROGRESS_BYTES)} came within ${PROGRESS_MS / 1000} s`,
    { details: { reason: 'UPLOAD_STALLED', next: 'Send it again, over a faster line' } },
  )

const tooLong = (): AppError =>
  new AppError('INVALID', `It was not all there within ${UPLOAD_MS_MAX / 60_000} minutes`, {
    details: { reason: 'UPLOAD_STALLED', next: 'Send it again, over a faster line' },
  })

const full = (count: number, own: boolean): AppError =>
  new AppError(
    'UNAVAILABLE',
    `${count} uploads${own ? ' of this organization' : ''} wait or are under way`,
    {
      details: {
        reason: 'UPLOADS_FULL',
        retryAfterMs: RETRY_AFTER_MS,
        next: 'Send it again in a few seconds',
      },
    },
  )

const removed = (): AppError =>
  new AppError('UNAVAILABLE', 'Equal bytes that nothing used were being removed', {
    details: { reason: 'UPLOAD_REMOVED', retryAfterMs: 0, next: 'Send them again' },
  })

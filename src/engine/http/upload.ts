// `POST /v1/components?orgId=` (FN-1): the raw bytes of a component, ahead of a deploy that names them by their hash.
// 1. Nothing of the body is read before the caller is known and has a place; nothing is stored before the first eight
//    bytes are those of a WASM binary (000-51).
// 2. The bytes stream into the blob store: an upload costs a few pieces of memory, however large it is.
// 3. A client that sends too slowly loses its place: nobody holds one by doing nothing.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { orgInput } from '#api/base.ts'
import { deploy as contract } from '#api/functions.ts'
import { UPLOAD_BYTES_MAX } from '#core/function/limits.ts'
import { formatBytes } from '#lib/bytes.ts'
import type { Cancel, Clock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { transaction } from '#store/connect.ts'
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
import { UploadTurns } from '#engine/http/upload-turns.ts'

export const UPLOAD_PATH = '/v1/components'

/** In each such time at least so much must come: 64 MiB take 32 minutes at worst, 2.3 at 4 Mbit/s. */
export const PROGRESS_MS = 30_000
const PROGRESS_BYTES = 1024 * 1024
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
  const turns = new UploadTurns()
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
      const giveBack = await turns.take(orgId, { clock: engine.clock, gone: gone.signal })
      try {
        sendJson(res, 200, await store(engine, orgId, req))
      } finally {
        giveBack()
      }
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
  const stopWatching = watch(body, clock)
  try {
    const head = await preamble(body)
    const kind = checkMagic(head) === 'component' ? 'component' : 'preview1'
    const { sha256, bytes: sizeBytes } = await blobs.put(whole(head, body))
    await transaction(db, async (tx) => {
      await saveUpload(tx, { orgId, sha256, sizeBytes, kind, now: new Date(clock.now()) })
      // Equal bytes that nobody used may have been removed until the rows above were locked.
      if (!(await blobs.has(sha256))) throw removed()
    })
    return { sha256, sizeBytes }
  } finally {
    stopWatching()
    body.drop(UNREAD_MS, clock)
  }
}

/** The first pieces, with eight bytes at least unless there are no more. */
async function preamble(body: RequestBody): Promise<Buffer> {
  let head = Buffer.alloc(0)
  while (head.length < PREAMBLE_BYTES) {
    const { done, value } = await body.next()
    if (done === true) break
    head = Buffer.concat([head, value])
  }
  return head
}

async function* whole(head: Uint8Array, body: RequestBody): AsyncGenerator<Uint8Array> {
  yield head
  for await (const piece of body) {
    if (body.bytes > UPLOAD_BYTES_MAX) throw tooLarge(`more than ${formatBytes(UPLOAD_BYTES_MAX)}`)
    yield piece
  }
}

/** Fails a body that comes too slowly; answers the way to stop. */
function watch(body: RequestBody, clock: Clock): Cancel {
  let before = 0
  let cancel: Cancel
  const look = (): void => {
    if (body.ended) return
    if (body.bytes - before < PROGRESS_BYTES) return body.fail(stalled())
    before = body.bytes
    cancel = clock.after(PROGRESS_MS, look)
  }
  cancel = clock.after(PROGRESS_MS, look)
  return () => cancel()
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

const removed = (): AppError =>
  new AppError('UNAVAILABLE', 'Equal bytes that nothing used were being removed', {
    details: { reason: 'UPLOAD_REMOVED', retryAfterMs: 0, next: 'Send them again' },
  })

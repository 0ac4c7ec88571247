// Bodies of calls: read whole, within their limit, as JSON and nothing else. A form cannot be a call: browsers send
// those for any site.
import type { IncomingMessage } from 'node:http'
import { AppError } from '#lib/error.ts'

/** The biggest call, a deploy: 8 MiB of component are 10.7 MiB of base64. */
export const DEPLOY_BODY_MAX = 12 * 1024 * 1024
/** stdin of 8 MiB, in base64 as well. */
export const INVOKE_BODY_MAX = 12 * 1024 * 1024
/** Everything else is a few fields. */
export const BODY_MAX = 64 * 1024

/** The whole body. Throws TOO_LARGE as soon as it is over `max`; the rest is then not read. */
export async function readBody(req: IncomingMessage, max: number): Promise<Buffer> {
  if (Number(req.headers['content-length'] ?? 0) > max) throw tooLarge(max)
  const chunks: Buffer[] = []
  let size = 0
  // Not `for await`: its iterator costs as much as the rest of reading a small body.
  await new Promise<void>((resolve, reject) => {
    const settle = (error?: Error): void => {
      req.off('data', take).off('end', settle).off('error', settle).off('close', gone)
      if (error) reject(error)
      else resolve()
    }
    const take = (chunk: Buffer): void => {
      size += chunk.length
      chunks.push(chunk)
      if (size <= max) return
      req.pause()
      settle(tooLarge(max))
    }
    const gone = (): void => settle(req.errored ?? new Error('the client went away'))
    if (req.destroyed) return gone()
    req.on('data', take).once('end', settle).once('error', settle).once('close', gone)
  })
  return chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)
}

function tooLarge(max: number): AppError {
  return new AppError('TOO_LARGE', `The body is larger than ${max} bytes`, {
    details: { reason: 'BODY_TOO_LARGE', max, next: 'Send less in one call' },
  })
}

/** The value of a JSON body; undefined for none. */
export function jsonOf(bytes: Buffer, contentType: string | undefined): unknown {
  if (bytes.length === 0) return undefined
  const type = contentType?.split(';')[0]?.trim().toLowerCase()
  if (type !== undefined && type !== 'application/json')
    throw new AppError('INVALID', `The body is ${type}; application/json is needed`, {
      details: { reason: 'CONTENT_TYPE', next: 'Send JSON with content-type: application/json' },
    })
  const value = parsed(bytes)
  // Checks of input pass over such a field without a word, in a map of the caller's names too (`env` of an invocation).
  if (hasProto(value))
    throw new AppError('INVALID', 'The body has a field named __proto__', {
      details: { reason: 'INVALID_INPUT', next: 'Send it under another name' },
    })
  return value
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(utf8.decode(bytes))
  } catch (error) {
    throw new AppError('INVALID', 'The body is not JSON', {
      cause: error,
      details: { reason: 'MALFORMED_JSON', next: 'Send one JSON value in UTF-8' },
    })
  }
}

/** Without recursion: JSON nests as deep as its body is long. */
function hasProto(body: unknown): boolean {
  const left = [body]
  while (left.length > 0) {
    const value = left.pop()
    if (typeof value !== 'object' || value === null) continue
    if (Object.hasOwn(value, '__proto__')) return true
    for (const part of Object.values(value)) if (typeof part === 'object') left.push(part)
  }
  return false
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

// A component that is too large to travel inline: its bytes go ahead of the deploy (FN-1), straight from the file.
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ORPCError } from '@orpc/client'
import { z } from 'zod'
import { authorization, repeat } from '#cli/call.ts'
import type { Cli } from '#cli/cli.ts'
import { unreadable } from '#cli/failure.ts'
import { ConnectionLost, NotConnected } from '#cli/http-fetch.ts'
import { AppError } from '#lib/error.ts'

const Sent = z.object({ sha256: z.string(), sizeBytes: z.number() })
const Refused = z.object({
  code: z.string(),
  status: z.number(),
  message: z.string(),
  data: z.unknown().optional(),
})

export type Sending = {
  file: string
  sizeBytes: number
  orgId: string
  /** Bytes that were sent so far. */
  onProgress(bytes: number): void
}

/** Answers the hash to deploy by. Sending the same bytes twice makes nothing twice: a broken connection is tried again. */
export async function sendComponent(cli: Cli, sending: Sending): Promise<string> {
  const { clock, random, signal } = cli
  const target = await cli.target()
  const deps = { target, version: cli.version, clock, random, signal }
  return repeat(() => sendOnce(cli, sending), true, deps)
}

async function sendOnce(cli: Cli, sending: Sending): Promise<string> {
  const target = await cli.target()
  const url = new URL(`${target.url}/v1/components?orgId=${encodeURIComponent(sending.orgId)}`)
  const headers = {
    ...authorization(target.credential),
    'user-agent': `ccp/${cli.version}`,
    'content-type': 'application/octet-stream',
    'content-length': String(sending.sizeBytes),
  }
  const hash = createHash('sha256')
  let sent = 0
  const counted = new Transform({
    transform(bytes: Buffer, _encoding, done) {
      hash.update(bytes)
      sent += bytes.length
      sending.onProgress(sent)
      done(null, bytes)
    },
  })
  const { status, body } = await exchange(url, { headers, signal: cli.signal }, (to) =>
    pipeline(createReadStream(sending.file, { end: sending.sizeBytes - 1 }), counted, to),
  )
  if (status !== 200) throw refusal(status, body)
  const { sha256 } = Sent.parse(body)
  if (sha256 === hash.digest('hex')) return sha256
  throw new AppError('UNAVAILABLE', `what arrived of ${sending.file} has another SHA-256`, {
    details: { reason: 'BYTES_CHANGED', next: 'Deploy it again' },
  })
}

type Answered = { status: number; body: unknown }

/** Rejects with NotConnected or ConnectionLost, or the signal's reason. An answer may come before all is sent. */
function exchange(
  url: URL,
  { headers, signal }: { headers: Record<string, string>; signal: AbortSignal },
  send: (to: NodeJS.WritableStream) => Promise<void>,
): Promise<Answered> {
  const open = url.protocol === 'https:' ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    let connected = false
    const call = open(url, { method: 'POST', headers, signal })
    call.on('socket', (socket) => {
      if (!socket.connecting) connected = true
      else
        socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
          connected = true
        })
    })
    call.on('response', (answer) => {
      const pieces: Buffer[] = []
      answer.on('data', (piece: Buffer) => pieces.push(piece))
      answer.on('error', (error: Error) =>
        reject(new ConnectionLost(error.message, { cause: error })),
      )
      answer.on('end', () => {
        resolve({ status: answer.statusCode ?? 0, body: parsed(Buffer.concat(pieces)) })
        // A refusal comes while we still send.
        call.destroy()
      })
    })
    call.on('error', (error: NodeJS.ErrnoException) => {
      if (signal.aborted) reject(signal.reason)
      else if (connected) reject(new ConnectionLost(error.message, { cause: error }))
      else reject(new NotConnected(error.code ?? error.message, error))
    })
    send(call).catch((error: NodeJS.ErrnoException) => {
      // What the call itself says of its own end says more.
      if (error.path === undefined) return
      reject(unreadable(error.path, error, 'Name the .wasm file that your compiler wrote'))
      call.destroy()
    })
  })
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString())
  } catch {
    return undefined
  }
}

/** As the typed client has it: told like every other refusal. */
function refusal(status: number, body: unknown): ORPCError<string, unknown> {
  const told = Refused.safeParse(body).data
  if (!told) return new ORPCError('INTERNAL', { status, message: `it answers ${status}` })
  const { code, message, data } = told
  return new ORPCError(code, { defined: true, status, message, data })
}

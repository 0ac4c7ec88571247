// Answers that no procedure makes: errors of the wire, small JSON, bytes.
import type { ServerResponse } from 'node:http'
import type { ORPCError } from '@orpc/server'
import type { Code, ErrorDetails } from '#lib/error.ts'

/** On every answer, pages included. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'x-frame-options': 'DENY',
}

export function sendJson(res: ServerResponse, status: number, value: unknown): void {
  send(res, status, { type: 'application/json', body: JSON.stringify(value) })
}

export function send(
  res: ServerResponse,
  status: number,
  { type, body }: { type: string; body: string | Uint8Array },
): void {
  if (res.headersSent) return
  if (!res.hasHeader('cache-control')) res.setHeader('cache-control', 'no-store')
  res.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
  res.end(res.req.method === 'HEAD' ? undefined : body)
}

/** In the shape that the contract's own errors have; `rpc` wraps it as that wire does. */
export function sendError(
  res: ServerResponse,
  error: ORPCError<Code, ErrorDetails>,
  wire: 'rpc' | 'rest',
): void {
  const told = error.toJSON()
  sendJson(res, error.status, wire === 'rpc' ? { json: told } : told)
}

// Small helpers over bytes that name nothing of compute.
import { createHash, timingSafeEqual } from 'node:crypto'

export const sha256 = (bytes: Uint8Array | string): Buffer =>
  createHash('sha256').update(bytes).digest()

export const sha256Hex = (bytes: Uint8Array | string): string => sha256(bytes).toString('hex')

/** Equal without telling by its time where they differ. */
export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && timingSafeEqual(a, b)

/** '57 KB', '1.2 MB': powers of 1024, one decimal from MB on. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  if (bytes < 1024 ** 2) return `${Math.round(bytes / 1024)} KB`
  if (bytes < 1024 ** 3) return `${(bytes / 1024 ** 2).toFixed(1)} MB`
  return `${(bytes / 1024 ** 3).toFixed(1)} GB`
}

/** Bytes of a base64 text, or undefined when it is not canonical base64 (RFC 4648 §4, padded). */
export function fromBase64(text: string): Buffer | undefined {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text ? bytes : undefined
}

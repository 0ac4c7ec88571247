// The few pages of an engine without a console: sign in, join, approve a terminal. Plain files, no script or style inline.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ServerResponse } from 'node:http'
import { send } from '#engine/http/answer.ts'

/** What a page may load: our own files. Nothing inline, no frame, no other site. `data:` is for icons in a style. */
export const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ')

const PAGES: Readonly<Record<string, string>> = {
  '/': 'home.html',
  '/sign-in': 'sign-in.html',
  '/setup': 'setup.html',
  '/invitation': 'invitation.html',
  '/device': 'device.html',
  '/assets/icon.svg': 'icon.svg',
  '/assets/pages.css': 'pages.css',
  '/assets/pages.js': 'pages.js',
}

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  js: 'text/javascript; charset=utf-8',
}

/** False when no page has this path. */
export async function servePage(res: ServerResponse, path: string): Promise<boolean> {
  const file = Object.hasOwn(PAGES, path) ? PAGES[path] : undefined
  return file === undefined ? false : sendAsset(res, file)
}

/** A file of the assets folder, by a name of ours. */
export async function sendAsset(res: ServerResponse, file: string): Promise<true> {
  const body = await readFile(join(import.meta.dirname, 'assets', file))
  const type = TYPES[file.split('.').at(-1) ?? ''] ?? 'application/octet-stream'
  res.setHeader('content-security-policy', PAGE_POLICY)
  res.setHeader('cache-control', 'no-cache')
  send(res, 200, { type, body })
  return true
}

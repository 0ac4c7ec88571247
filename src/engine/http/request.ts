// What a request says of itself, as far as it can be believed.
import type { IncomingMessage } from 'node:http'
import { isIPv6 } from 'node:net'
import { AppError } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import type { Clock } from '#lib/clock.ts'
import type { Random } from '#lib/random.ts'

/** A request id of a caller or a proxy is kept when it looks like one. */
const REQUEST_ID = /^[A-Za-z0-9_.-]{8,64}$/

export function requestIdOf(req: IncomingMessage, at: { clock: Clock; random: Random }): string {
  const given = req.headers['x-request-id']
  if (typeof given === 'string' && REQUEST_ID.test(given)) return given
  return newId('req', at.clock.now(), at.random)
}

/** The path without its query; undefined for a target that is no path (`*`, an absolute URL). */
export function pathOf(req: IncomingMessage): { path: string; query: string } | undefined {
  const target = req.url ?? ''
  if (!target.startsWith('/')) return undefined
  const at = target.indexOf('?')
  return at < 0
    ? { path: target, query: '' }
    : { path: target.slice(0, at), query: target.slice(at + 1) }
}

/**
 * The client's address: the socket's, unless that is a proxy we trust; then the last address of `x-forwarded-for` that
 * is none. What stands before it was written by the client.
 */
export function ipOf(req: IncomingMessage, trustedProxies: readonly string[]): string {
  const direct = plain(req.socket.remoteAddress ?? '')
  if (!trustedProxies.includes(direct)) return direct
  const hops = String(req.headers['x-forwarded-for'] ?? '')
    .split(',')
    .map((hop) => plain(hop.trim()))
    .filter((hop) => hop !== '')
  return hops.findLast((hop) => !trustedProxies.includes(hop)) ?? direct
}

/** An IPv4 address that came over an IPv6 socket is itself. */
const plain = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/, '')

/** Whom a limit counts: an IPv4 address, or the /64 of an IPv6 address, of which one person has as many as they like. */
export function networkOf(ip: string): string {
  if (!isIPv6(ip)) return ip
  const [head = '', tail] = ip.split('%', 1)[0]?.split('::') ?? []
  const groups = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = tail === undefined ? [] : Array<string>(8 - groups.length - after.length).fill('0')
  const four = [...groups, ...zeros, ...after].slice(0, 4)
  return `${four.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`
}

const SAFE = new Set(['GET', 'HEAD', 'OPTIONS'])

/**
 * Throws FORBIDDEN for a write that another site made a browser send. A cookie alone proves nothing: a form of any site
 * carries it, and services under one parent domain are same-site with each other. A write is ours when its Origin is
 * ours; without cookie and Origin it comes from no page.
 */
export function refuseForged(req: IncomingMessage, origins: readonly string[]): void {
  if (SAFE.has(req.method ?? '')) return
  const { origin, cookie } = req.headers
  const site = req.headers['sec-fetch-site']
  if (origin === undefined ? cookie === undefined : origins.includes(origin)) {
    if (site === undefined || site === 'same-origin' || site === 'none') return
  }
  throw new AppError('FORBIDDEN', `A write from the origin ${origin ?? '(none)'} is refused`, {
    details: {
      reason: 'FOREIGN_ORIGIN',
      next: `Open ${origins[0] ?? 'the platform'} itself, or send an API key instead of a cookie`,
    },
  })
}

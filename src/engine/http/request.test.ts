import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { test } from 'node:test'
import { ipOf, networkOf, pathOf, refuseForged } from '#engine/http/request.ts'

const request = (parts: {
  method?: string
  url?: string
  headers?: Record<string, string>
  remoteAddress?: string
}): IncomingMessage =>
  ({
    method: parts.method ?? 'GET',
    url: parts.url,
    headers: parts.headers ?? {},
    socket: { remoteAddress: parts.remoteAddress ?? '192.0.2.1' },
  }) as unknown as IncomingMessage

test('AC-3 the address is the socket’s; a forwarded one counts only from a proxy that we trust', () => {
  const headers = { 'x-forwarded-for': '198.51.100.1, 203.0.113.9 , 10.0.0.2' }
  const from = (remoteAddress: string, trusted: string[]): string =>
    ipOf(request({ headers, remoteAddress }), trusted)
  assert.equal(from('192.0.2.1', []), '192.0.2.1')
  assert.equal(from('192.0.2.1', ['10.0.0.1']), '192.0.2.1')
  assert.equal(from('10.0.0.1', ['10.0.0.1']), '10.0.0.2')
  assert.equal(from('::ffff:10.0.0.1', ['10.0.0.1', '10.0.0.2']), '203.0.113.9')
  assert.equal(ipOf(request({ remoteAddress: '10.0.0.1' }), ['10.0.0.1']), '10.0.0.1')
})

test('AC-3 an IPv6 address is counted by its /64', () => {
  for (const [ip, network] of [
    ['192.0.2.1', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8::5', '2001:db8:0:0::/64'],
    ['2001:0db8:0001::', '2001:db8:1:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ])
    assert.equal(networkOf(ip ?? ''), network)
})

test('a target that is no path is none of ours', () => {
  for (const url of ['*', 'http://evil.test/', '', undefined])
    assert.equal(pathOf(request(url === undefined ? {} : { url })), undefined)
  assert.deepEqual(pathOf(request({ url: '/a?b?c' })), { path: '/a', query: 'b?c' })
})

test('AC-3 which writes are refused: every method × origin × cookie × what the browser says', () => {
  const ours = 'https://clutch.example'
  for (const method of ['GET', 'HEAD', 'OPTIONS', 'POST', 'PUT', 'PATCH', 'DELETE'])
    for (const origin of [undefined, ours, 'https://evil.example', 'null'])
      for (const cookie of [undefined, 'a=b'])
        for (const site of [undefined, 'same-origin', 'none', 'same-site', 'cross-site']) {
          const headers = {
            ...(origin && { origin }),
            ...(cookie && { cookie }),
            ...(site && { 'sec-fetch-site': site }),
          }
          const safe = ['GET', 'HEAD', 'OPTIONS'].includes(method)
          const own = origin === ours || (origin === undefined && cookie === undefined)
          const near = site === undefined || site === 'same-origin' || site === 'none'
          const call = (): void => refuseForged(request({ method, headers }), [ours])
          if (safe || (own && near)) call()
          else assert.throws(call, { code: 'FORBIDDEN' }, JSON.stringify({ method, headers }))
        }
})

import assert from 'node:assert/strict'
import dgram from 'node:dgram'
import { Module } from 'node:module'
import net from 'node:net'
import { after, suite, test } from 'node:test'
import { DIAL_TIMEOUT_MS } from '#core/node/limits.ts'
import { systemClock as clock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { TCP_AFTER_MS, dial, type Dialled } from '#protocol/dial.ts'
import { createIdentity } from '#protocol/identity.ts'
import type { ListenOptions, Listener, Pipe } from '#protocol/pipe.ts'
import { type dialQuic, listenQuic, quicAvailability } from '#protocol/quic-pipe.ts'
import { ALPN, listenTls } from '#protocol/tls-pipe.ts'

const HOST = '127.0.0.1'
const engine = await createIdentity(systemRandom)
const node = await createIdentity(systemRandom)

const listeners: Listener[] = []
const pipes: Pipe[] = []
after(async () => {
  for (const pipe of pipes) pipe.destroy()
  for (const listener of listeners) await listener.close()
})

const options = (port: number): ListenOptions => ({
  host: HOST,
  port,
  identity: engine,
  clock,
  onPipe: (pipe) => void pipes.push(pipe),
})

async function tcp(port = 0): Promise<number> {
  const listener = await listenTls(options(port))
  listeners.push(listener)
  return listener.port
}

function udp(port = 0): number {
  const listening = listenQuic(options(port))
  assert.equal(listening.outcome, 'listening')
  const { listener } = listening as { listener: Listener }
  listeners.push(listener)
  return listener.port
}

async function timed(work: Promise<Dialled>): Promise<[Dialled, number]> {
  const began = performance.now()
  const dialled = await work
  if (dialled.outcome === 'connected') pipes.push(dialled.pipe)
  return [dialled, performance.now() - began]
}

/** A UDP port that takes everything and says nothing: what a firewall does. */
async function silentUdp(port: number): Promise<dgram.Socket> {
  const socket = dgram.createSocket('udp4')
  await new Promise<void>((resolve) => socket.bind(port, HOST, resolve))
  return socket
}

suite('dial', () => {
  test('ND-3 where both answer, QUIC is used', async () => {
    const port = await tcp()
    udp(port)
    const [dialled] = await timed(dial({ host: HOST, port, identity: node, clock }))
    assert.equal(dialled.outcome, 'connected')
    assert.equal((dialled as { transport: string }).transport, 'quic')
    assert.deepEqual((dialled as { others: unknown[] }).others, [])
  })

  test('ND-3 where UDP is swallowed, TCP takes over after 1.5 s, and the reason is told', async () => {
    const port = await tcp()
    const silent = await silentUdp(port)
    const [dialled, ms] = await timed(dial({ host: HOST, port, identity: node, clock }))
    silent.close()
    assert.equal((dialled as { transport: string }).transport, 'tls')
    const [{ transport, reason } = { transport: '', reason: '' }] = (
      dialled as { others: { transport: string; reason: string }[] }
    ).others
    assert.equal(transport, 'quic')
    assert.match(reason, /no answer within \d+ ms, when the other answered/)
    assert.ok(ms >= TCP_AFTER_MS - 50 && ms < DIAL_TIMEOUT_MS, `${ms} ms`)
  })

  test('ND-4 a dial that nobody answers is dropped after 3 s, naming each way', async () => {
    const socket = net.createServer(() => {}) // accepts and says nothing
    await new Promise<void>((resolve) => socket.listen(0, HOST, resolve))
    const { port } = socket.address() as net.AddressInfo
    const silent = await silentUdp(port)
    const [dialled, ms] = await timed(dial({ host: HOST, port, identity: node, clock }))
    silent.close()
    socket.close()
    assert.equal(dialled.outcome, 'failed')
    assert.ok(ms >= DIAL_TIMEOUT_MS - 50 && ms < DIAL_TIMEOUT_MS + 1500, `${ms} ms`)
    const { message } = dialled as { message: string }
    assert.match(message, new RegExp(`cannot reach ${HOST}:${port} \\(.*QUIC: no answer on UDP`))
    assert.match(message, /TCP: no answer on TCP/)
  })

  test('ND-3 a refused TCP port is told with its cause', async () => {
    const request = { host: HOST, port: 1, identity: node, clock }
    const [dialled] = await timed(dial({ ...request, transports: ['tls'] }))
    assert.match((dialled as { message: string }).message, /TCP: .*ECONNREFUSED/)
  })

  test('ND-3 a name that does not resolve is told as such', async () => {
    const request = { host: 'no-such-name.invalid', port: 1, identity: node, clock }
    const [dialled] = await timed(dial({ ...request, transports: ['quic'] }))
    assert.match(
      (dialled as { message: string }).message,
      /the name no-such-name.invalid does not resolve/,
    )
  })

  test('ND-3 names are resolved: localhost reaches a listener on 127.0.0.1', async () => {
    for (const [transport, port] of [
      ['quic', udp()],
      ['tls', await tcp()],
    ] as const) {
      const request = { host: 'localhost', port, identity: node, clock, transports: [transport] }
      const [dialled] = await timed(dial(request))
      assert.equal(dialled.outcome, 'connected', transport)
    }
  })

  test('ND-4 a cancelled dial ends at once', async () => {
    const silent = await silentUdp(0)
    const stop = new AbortController()
    const { port } = silent.address()
    const who = await createIdentity(systemRandom)
    const work = timed(dial({ host: HOST, port, identity: who, clock, signal: stop.signal }))
    setTimeout(() => stop.abort(), 50)
    const [dialled, ms] = await work
    silent.close()
    assert.equal(dialled.outcome, 'failed')
    assert.ok(ms < 1_000, `${ms} ms`)
  })

  test('ND-3 something else at the port is refused as not ours', async () => {
    const { createServer } = await import('node:tls')
    const { privateKeyPem: key, certificatePem: cert } = engine
    const other = createServer({ key, cert, minVersion: 'TLSv1.3' }, (socket) =>
      socket.on('error', () => {}),
    )
    await new Promise<void>((resolve) => other.listen(0, HOST, resolve))
    const { port } = other.address() as net.AddressInfo
    const [dialled] = await timed(
      dial({ host: HOST, port, identity: node, clock, transports: ['tls'] }),
    )
    other.close()
    assert.match(
      (dialled as { message: string }).message,
      new RegExp(`speaks nothing, not ${ALPN}`),
    )
  })

  test('ND-5 a certificate of the authority is shown instead of the self-signed one', async () => {
    const { issueCertificate, verifyCertificate } = await import('#protocol/certificate.ts')
    const authority = await createIdentity(systemRandom)
    const now = Date.now()
    const subject = { orgId: 'org_1', nodeId: 'node_1', generation: 4, publicKey: node.publicKey }
    const issued = await issueCertificate({ ...subject, authority, now, random: systemRandom })
    const seen = Promise.withResolvers<Pipe>()
    const listener = await listenTls({ ...options(0), onPipe: (pipe) => seen.resolve(pipe) })
    listeners.push(listener)
    const request = { host: HOST, port: listener.port, identity: node, clock }
    await timed(dial({ ...request, certificatePem: issued.pem, transports: ['tls'] }))
    const pipe = await seen.promise
    pipes.push(pipe)
    assert.equal(pipe.peer, node.publicKey)
    const expected = { authorities: [authority.publicKey], peer: pipe.peer, now }
    assert.equal(verifyCertificate(pipe.certificate as Uint8Array, expected).generation, 4)
  })

  test('ND-3 a port that is taken is refused with its address', async () => {
    const port = await tcp()
    await assert.rejects(listenTls(options(port)), /cannot listen on TCP 127.0.0.1:\d+/)
    const taken = udp()
    assert.throws(() => udp(taken), /cannot listen on UDP 127.0.0.1:\d+/)
  })

  test('ND-3 an onPipe that throws or rejects destroys the pipe and is told', async () => {
    for (const onPipe of [
      (): never => {
        throw new Error('no')
      },
      async (): Promise<never> => {
        throw new Error('no')
      },
    ]) {
      const told = Promise.withResolvers<Error>()
      const listener = await listenTls({ ...options(0), onPipe, onRefused: told.resolve })
      listeners.push(listener)
      const request = { host: HOST, port: listener.port, identity: node, clock }
      await timed(dial({ ...request, transports: ['tls'] }))
      assert.match((await told.promise).message, /could not be served/)
    }
  })
})

test('ND-3 without the addon QUIC is unavailable, TCP is dialled at once, and both say so', async () => {
  const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown }
  const original = loader._load
  loader._load = function (this: unknown, name, ...rest) {
    if (name.includes('libp2p-quic')) throw new Error('Cannot find the module')
    return original.call(this, name, ...rest)
  }
  const copy = '#protocol/quic-pipe.ts?without-addon' // not yet loaded, so neither is the addon
  const fresh = (await import(copy)) as {
    quicAvailability: typeof quicAvailability
    listenQuic: typeof listenQuic
    dialQuic: typeof dialQuic
  }
  try {
    assert.match(
      (fresh.quicAvailability() as { reason: string }).reason,
      /QUIC needs the addon .*Cannot find/,
    )
    assert.equal(fresh.listenQuic(options(0)).outcome, 'unavailable')
    const request = { host: HOST, port: 1, identity: node, clock, timeoutMs: 100 }
    assert.equal((await fresh.dialQuic(request)).outcome, 'unavailable')
  } finally {
    loader._load = original
  }
  assert.equal(quicAvailability().available, true)
})

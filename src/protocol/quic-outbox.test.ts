import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { fakeClock } from '#lib/fake-clock.ts'
import { systemRandom } from '#lib/random.ts'
import { createIdentity } from '#protocol/identity.ts'
import type { AppError } from '#lib/error.ts'
import { HANDSHAKE_MS, type Listener } from '#protocol/pipe.ts'
import { QuicOutbox, type Outlet } from '#protocol/quic-outbox.ts'
import { listenQuic } from '#protocol/quic-pipe.ts'

/** Takes what is written when told, and holds on to the memory until then, as the addon does. */
class SlowOutlet implements Outlet {
  #pending: { bytes: Uint8Array; done: () => void } | undefined
  readonly taken: Buffer[] = []
  writes = 0
  finished = false

  write(bytes: Uint8Array): Promise<void> {
    assert.equal(this.#pending, undefined, 'one write at a time')
    assert.equal(this.finished, false)
    this.writes++
    return new Promise((resolve) => {
      this.#pending = { bytes, done: resolve }
    })
  }

  finishWrite(): void {
    this.finished = true
  }

  /** Settles the write in flight; false when there is none. */
  async take(): Promise<boolean> {
    const pending = this.#pending
    if (!pending) return false
    this.taken.push(Buffer.from(pending.bytes)) // read only now: the memory must not have changed
    this.#pending = undefined
    pending.done()
    await new Promise((resolve) => setImmediate(resolve))
    return true
  }
}

const quiet = { drain: () => {}, error: () => {} }

suite('quic outbox', () => {
  test('ND-3 bytes leave in order and unchanged, though their memory is used again at once', async () => {
    const steps = fc.array(
      fc.oneof(
        fc.record({ size: fc.integer({ min: 1, max: 2000 }) }),
        fc.record({ size: fc.integer({ min: 100_000, max: 400_000 }) }),
        fc.constant('take' as const),
      ),
      { maxLength: 30 },
    )
    await fc.assert(
      fc.asyncProperty(steps, async (list) => {
        const outlet = new SlowOutlet()
        const outbox = new QuicOutbox(outlet, quiet)
        const expected: Buffer[] = []
        let next = 0
        for (const step of list) {
          if (step === 'take') {
            await outlet.take()
            continue
          }
          const bytes = Buffer.alloc(step.size, next++)
          expected.push(Buffer.from(bytes))
          outbox.write(bytes)
          bytes.fill(0xee)
        }
        outbox.end()
        while (await outlet.take());
        assert.ok(Buffer.concat(outlet.taken).equals(Buffer.concat(expected)))
        assert.equal(outlet.finished, true)
      }),
      { numRuns: 60 },
    )
  })

  test('ND-3 what is written while the addon is busy leaves in one write', async () => {
    const outlet = new SlowOutlet()
    const outbox = new QuicOutbox(outlet, quiet)
    for (let i = 0; i < 100; i++) outbox.write(Buffer.alloc(100, i))
    while (await outlet.take());
    assert.equal(outlet.writes, 2)
  })

  test('ND-3 a full outbox says so, and says when it is not', async () => {
    let drains = 0
    const outlet = new SlowOutlet()
    const outbox = new QuicOutbox(outlet, { drain: () => drains++, error: () => {} })
    assert.equal(outbox.write(Buffer.alloc(100_000)), true)
    assert.equal(outbox.write(Buffer.alloc(200_000)), false)
    await outlet.take()
    assert.equal(drains, 1)
    await outlet.take()
    assert.equal(drains, 1)
    assert.equal(outbox.write(Buffer.alloc(100_000)), true)
  })

  test('ND-3 a failed write is told once, and nothing more is sent', async () => {
    const errors: unknown[] = []
    const broken: Outlet = {
      write: () => Promise.reject(new Error('connection lost')),
      finishWrite: () => assert.fail('nothing to finish'),
    }
    const outbox = new QuicOutbox(broken, {
      drain: () => {},
      error: (error) => {
        errors.push(error)
        outbox.stop()
      },
    })
    outbox.write(Buffer.alloc(10))
    outbox.write(Buffer.alloc(10))
    outbox.end()
    await new Promise((resolve) => setImmediate(resolve))
    assert.equal(errors.length, 1)
  })
})

test('ND-3 a QUIC dialler that allows no stream is dropped at the deadline of the handshake', async () => {
  type Addon = {
    QuinnConfig: new (config: object) => object
    Client: new (
      config: object,
      family: number,
    ) => {
      outboundConnection(host: string, port: number): Promise<{ closed(): Promise<unknown> }>
      abort(): void
    }
  }
  const addon = createRequire(import.meta.url)('@chainsafe/libp2p-quic-linux-x64-gnu') as Addon
  const clock = fakeClock()
  const [engine, hostile] = [await createIdentity(systemRandom), await createIdentity(systemRandom)]
  const refused = Promise.withResolvers<AppError>()
  const listening = listenQuic({
    host: '127.0.0.1',
    port: 0,
    identity: engine,
    clock,
    onPipe: () => assert.fail('no pipe can be'),
    onRefused: refused.resolve,
  })
  const { listener } = listening as { listener: Listener }
  const config = new addon.QuinnConfig({
    privateKeyProto: hostile.libp2pKey,
    handshakeTimeout: 5_000,
    maxIdleTimeout: 15_000,
    keepAliveInterval: 1_000,
    maxConcurrentStreamLimit: 0,
    maxStreamData: 1 << 20,
    maxConnectionData: 1 << 20,
    receiveBufferSize: 1 << 20,
    sendBufferSize: 1 << 20,
  })
  const client = new addon.Client(config, 0)
  const connection = await client.outboundConnection('127.0.0.1', listener.port)
  const closed = connection.closed()
  const deadline = performance.now() + 10_000
  while (clock.pending() === 0 && performance.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 5))
  await clock.advance(HANDSHAKE_MS)
  assert.match((await refused.promise).message, /lost/)
  await closed
  client.abort()
  await listener.close()
})

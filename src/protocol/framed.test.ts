import assert from 'node:assert/strict'
import { Duplex, PassThrough } from 'node:stream'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { encode } from '#protocol/codec.ts'
import { FramedStream, STREAM_MESSAGE_MAX } from '#protocol/framed-stream.ts'
import { Framed, MESSAGE_MAX, MessageReader, UNREAD_MAX, frame } from '#protocol/framed.ts'
import { memoryPipes } from '#protocol/memory-pipe.ts'
import { Mux } from '#protocol/mux.ts'
import type { MuxStream } from '#protocol/mux-stream.ts'

const reasonOf = (error: unknown): unknown => (error as AppError | undefined)?.details?.reason
const bodies = fc.array(fc.uint8Array({ maxLength: 3000 }), { maxLength: 20 })

suite('framed pipe', () => {
  test('ND-3 any messages in any cutting come out whole and in order', async () => {
    await fc.assert(
      fc.asyncProperty(bodies, fc.integer({ min: 1, max: 500 }), async (sent, chunkMax) => {
        const [near, far] = memoryPipes({ chunkMax })
        const [a, b] = [new Framed(near.pipe), new Framed(far.pipe)]
        for (const bytes of sent) a.send({ bytes })
        for (const bytes of sent) assert.deepEqual(await b.next(), { bytes })
        a.destroy()
      }),
      { numRuns: 50 },
    )
  })

  test('ND-3 next() reads one message, and nothing of what follows it', async () => {
    const [near, far] = memoryPipes({ chunkMax: 3 })
    const [a, b] = [new Framed(near.pipe), new Framed(far.pipe)]
    a.send('one')
    a.send('two')
    near.pipe.write(Buffer.from('raw bytes'))
    assert.equal(await b.next(), 'one')
    assert.equal(await b.next(), 'two')
    const pipe = b.takeOver()
    let got = ''
    await new Promise<void>((resolve) =>
      pipe.receive((chunk) => {
        got += chunk.toString()
        if (got.length === 9) resolve()
      }),
    )
    assert.equal(got, 'raw bytes')
  })

  test('ND-3 take-over from inside the handler delivers nothing more', async () => {
    const [near, far] = memoryPipes()
    const [a, b] = [new Framed(near.pipe), new Framed(far.pipe)]
    const seen: unknown[] = []
    const taken = new Promise<Buffer>((resolve) =>
      b.onMessage((message) => {
        seen.push(message)
        b.takeOver().receive(resolve)
      }),
    )
    near.pipe.write(Buffer.concat([frame('first', 100), frame('second', 100)]))
    assert.deepEqual(await taken, frame('second', 100))
    assert.deepEqual(seen, ['first'])
    a.destroy()
  })

  test('ND-3 a longer message than allowed is cut off at its head', async () => {
    const [near, far] = memoryPipes()
    const b = new Framed(far.pipe, 1000)
    const head = Buffer.alloc(4)
    head.writeUInt32BE(1001)
    near.pipe.write(head)
    await assert.rejects(b.next(), (error) => reasonOf(error) === 'MESSAGE_TOO_LARGE')
  })

  test('ND-3 the limit can be low before a peer is known and raised after', async () => {
    const [near, far] = memoryPipes()
    const [a, b] = [new Framed(near.pipe), new Framed(far.pipe, 100)]
    a.send('small')
    assert.equal(await b.next(), 'small')
    b.allow(MESSAGE_MAX)
    a.send('x'.repeat(1000))
    assert.equal(((await b.next()) as string).length, 1000)
    assert.throws(() => a.send('x'.repeat(MESSAGE_MAX)), /1048576 are allowed/)
  })

  test('ND-3 an unfinished message costs what has arrived, not what it announced', () => {
    const reader = new MessageReader()
    const head = Buffer.alloc(4)
    head.writeUInt32BE(MESSAGE_MAX)
    reader.push(head)
    const before = process.memoryUsage().arrayBuffers
    for (let i = 0; i < 10_000; i++) {
      reader.push(Buffer.alloc(1))
      assert.equal(reader.next(MESSAGE_MAX), undefined)
    }
    assert.equal(reader.held, 10_004)
    assert.ok(process.memoryUsage().arrayBuffers - before < MESSAGE_MAX / 2)
  })

  test('ND-3 a peer that takes no messages is cut off', () => {
    const [near, far] = memoryPipes()
    far.hold(true)
    const a = new Framed(near.pipe)
    let closedWith: unknown
    a.onClose((error) => (closedWith = error))
    const message = Buffer.alloc(64 * 1024)
    for (let sent = 0; sent < UNREAD_MAX + (1 << 20) && !closedWith; sent += message.length)
      a.send(message)
    assert.equal(reasonOf(closedWith), 'PEER_STALLED')
  })

  test('ND-3 any bytes: a message, or cut with a typed refusal', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 5 }),
        async (pieces) => {
          const [near, far] = memoryPipes()
          const b = new Framed(far.pipe, 256)
          for (const piece of pieces) {
            const head = Buffer.alloc(4)
            head.writeUInt32BE(piece.length)
            near.pipe.write(Buffer.concat([head, piece]))
          }
          near.pipe.close()
          for (;;) {
            const message = await b.next().catch((error: unknown) => {
              assert.ok(error instanceof AppError)
              return b
            })
            if (message === b) return
          }
        },
      ),
      { numRuns: 200 },
    )
  })
})

suite('framed stream', () => {
  test('ND-3 any messages in any cutting, and raw bytes after them', async () => {
    await fc.assert(
      fc.asyncProperty(bodies, fc.integer({ min: 1, max: 999 }), async (sent, cut) => {
        const stream = new PassThrough()
        const reader = new FramedStream(stream)
        const all = Buffer.concat([
          ...sent.map((bytes) => frame(bytes, 10_000)),
          Buffer.from('raw'),
        ])
        const writing = (async () => {
          for (let at = 0; at < all.length; at += cut) {
            stream.write(all.subarray(at, at + cut))
            await new Promise((resolve) => setImmediate(resolve))
          }
          stream.end()
        })()
        for (const bytes of sent) assert.deepEqual(await reader.read(), bytes)
        await writing
        let rest = ''
        for await (const chunk of stream) rest += String(chunk)
        assert.equal(rest, 'raw')
      }),
      { numRuns: 20 },
    )
  })

  test('ND-3 messages both ways over a stream of the multiplexer, each as large as allowed', async () => {
    const [near, far] = memoryPipes()
    const served = Promise.withResolvers<number>()
    const onStream = async (stream: MuxStream): Promise<void> => {
      const framed = new FramedStream(stream)
      let count = 0
      for (let m = await framed.read(); m !== undefined; m = await framed.read(), count++)
        await framed.write(m)
      framed.end()
      served.resolve(count)
    }
    new Mux(far.pipe, {
      clock: systemClock,
      opens: false,
      onStream: (stream) => void onStream(stream).catch(served.reject),
    })
    const mux = new Mux(near.pipe, { clock: systemClock, opens: true })
    const framed = new FramedStream(mux.open())
    const big = new Uint8Array(STREAM_MESSAGE_MAX - 5)
    const writing = (async () => {
      for (let i = 0; i < 20; i++) await framed.write(big)
      framed.end()
    })()
    for (let i = 0; i < 20; i++)
      assert.equal(((await framed.read()) as Uint8Array).length, big.length)
    assert.equal(await framed.read(), undefined)
    await writing
    assert.equal(await served.promise, 20)
    mux.close()
  })

  test('ND-3 write waits for a reader that is slow', async () => {
    const stream = new PassThrough({ highWaterMark: 1024 })
    const framed = new FramedStream(stream)
    let done = false
    const writing = framed.write(new Uint8Array(4096)).then(() => (done = true))
    await new Promise((resolve) => setImmediate(resolve))
    assert.equal(done, false)
    assert.equal(((await framed.read()) as Uint8Array).length, 4096)
    await writing
  })

  test('ND-3 an end inside a message, an empty one and a long one are refused', async () => {
    const cases: [Buffer, string][] = [
      [frame('hello', 100).subarray(0, 6), 'MESSAGE_CUT_SHORT'],
      [Buffer.from([0, 0]), 'MESSAGE_CUT_SHORT'],
      [Buffer.alloc(4), 'MESSAGE_CUT_SHORT'],
      [Buffer.from([0xff, 0, 0, 0, 1]), 'MESSAGE_TOO_LARGE'],
      [Buffer.from([0, 0, 0, 1, 0xff]), 'MESSAGE_MALFORMED'],
    ]
    for (const [bytes, reason] of cases) {
      const stream = new PassThrough()
      stream.on('error', () => {})
      stream.end(bytes)
      await assert.rejects(new FramedStream(stream).read(), (error) => reasonOf(error) === reason)
      assert.equal(stream.destroyed, true)
    }
  })

  test('ND-3 a reset reaches whoever reads or writes', async () => {
    const stream = new Duplex({ read() {}, write() {}, highWaterMark: 10 })
    const framed = new FramedStream(stream)
    const reading = framed.read()
    const writing = framed.write('x'.repeat(100))
    stream.destroy(new Error('reset'))
    await assert.rejects(reading, /reset/)
    await assert.rejects(writing, /reset/)
    await assert.rejects(framed.read(), /reset/)
    assert.throws(() => frame('x'.repeat(100), encode('x').length), /are allowed/)
  })
})

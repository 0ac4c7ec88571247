import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { buffer } from 'node:stream/consumers'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { systemClock } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { until } from '#lib/until.ts'
import { FRAME, PAYLOAD_MAX } from '#protocol/frame.ts'
import { memoryPipes, type MemoryEnd, type MemoryPipeOptions } from '#protocol/memory-pipe.ts'
import { HELD_MAX, Mux, STALL_MS, UNREAD_MAX, type MuxOptions } from '#protocol/mux.ts'
import { PIPE_WINDOW, PIPE_WINDOW_MAX, Pace } from '#protocol/pace.ts'
import { WINDOW, WINDOW_MAX, type MuxStream } from '#protocol/mux-stream.ts'
import { frameOf } from '#protocol/test-frames.ts'

type World = {
  near: Mux
  far: Mux
  ends: [MemoryEnd, MemoryEnd]
  /** Streams as they reach the far side. */
  arrived: MuxStream[]
  nearClosed: Promise<AppError | undefined>
  farClosed: Promise<AppError | undefined>
}

function world(
  options: Partial<MuxOptions> & { far?: Partial<MuxOptions>; pipes?: MemoryPipeOptions } = {},
): World {
  const { far: farOptions, pipes, ...nearOptions } = options
  const ends = memoryPipes(pipes)
  const arrived: MuxStream[] = []
  const { promise: nearClosed, resolve: onNear } = Promise.withResolvers<AppError | undefined>()
  const { promise: farClosed, resolve: onFar } = Promise.withResolvers<AppError | undefined>()
  const near = new Mux(ends[0].pipe, {
    clock: systemClock,
    opens: true,
    onClose: onNear,
    ...nearOptions,
  })
  const far = new Mux(ends[1].pipe, {
    clock: systemClock,
    opens: false,
    onClose: onFar,
    onStream: (stream) => void arrived.push(stream),
    ...farOptions,
  })
  return { near, far, ends, arrived, nearClosed, farClosed }
}

const reasonOf = (error: unknown): unknown => (error as AppError | undefined)?.details?.reason

suite('streams', () => {
  test('ND-3 any writes come out whole, in order, on every stream, in any cutting', async () => {
    const plan = fc.array(fc.array(fc.integer({ min: 0, max: 100_000 }), { maxLength: 6 }), {
      minLength: 1,
      maxLength: 8,
    })
    await fc.assert(
      fc.asyncProperty(plan, fc.integer({ min: 1, max: 70_000 }), async (streams, chunkMax) => {
        const w = world({ far: { onStream: (s) => void s.pipe(s) }, pipes: { chunkMax } })
        const work = streams.map(async (sizes, at) => {
          const stream = w.near.open(at % 2 === 0 ? 'bulk' : 'small')
          const sent = sizes.map((size) => randomBytes(size))
          for (const bytes of sent) stream.write(bytes)
          stream.end()
          assert.ok(Buffer.concat(sent).equals(await buffer(stream)))
        })
        await Promise.all(work)
        await until('every stream is forgotten', () => w.near.size === 0 && w.far.size === 0)
        assert.equal(w.far.unread + w.near.unread, 0)
        w.near.close()
      }),
      { numRuns: 25 },
    )
  })

  test('ND-3 the class given at open reaches the peer', async () => {
    const w = world()
    w.near.open('small')
    w.near.open('bulk')
    await until('two streams arrive', () => w.arrived.length === 2)
    assert.deepEqual(
      w.arrived.map((stream) => stream.class),
      ['small', 'bulk'],
    )
  })

  test('ND-3 only the acceptor opens streams', () => {
    const w = world()
    assert.throws(() => w.far.open(), /only the acceptor/)
  })

  test('ND-3 a stream destroyed on one side fails on the other, and says why', async () => {
    const w = world()
    const stream = w.near.open()
    stream.write('x')
    await until('a stream arrives', () => w.arrived.length === 1)
    const [far] = w.arrived as [MuxStream]
    stream.destroy()
    await until('the far side is closed', () => far.closed)
    assert.equal(reasonOf(far.errored), 'STREAM_RESET')
    assert.equal(w.near.size + w.far.size, 0)
    assert.ok((await w.near.ping()) >= 0, 'the pipe lives on')
  })

  test('ND-3 beyond its streams the far side refuses, and small streams have a reserve', async () => {
    const w = world({ streamsMax: 4, far: { streamsMax: 2 } })
    const open = [w.near.open(), w.near.open()]
    const refused = w.near.open()
    await until('the refused stream is closed', () => refused.closed)
    assert.match(refused.errored?.message ?? '', /too many streams/)
    assert.equal(w.far.size, open.length)
    for (let i = 0; i < 2; i++) w.near.open()
    assert.throws(() => w.near.open(), /4 streams are open: the most is 4/)
    const small = w.near.open('small')
    await w.near.ping()
    assert.equal(small.destroyed, false)
  })

  test('ND-3 near the end of the ids the owner is told, and can still open for a while', () => {
    const said: number[] = []
    const w = world({ idsMax: 16, onExhausted: () => said.push(w.near.size) })
    for (let i = 0; i < 14; i++) w.near.open().destroy()
    assert.equal(w.near.exhausted, false)
    w.near.open()
    assert.equal(w.near.exhausted, true)
    w.near.open()
    assert.deepEqual(said, [1], 'said once')
    assert.throws(
      () => w.near.open(),
      (error) => reasonOf(error) === 'MUX_EXHAUSTED',
    )
  })

  test('a closed pipe fails every stream and ping with its reason', async () => {
    const w = world()
    const stream = w.near.open()
    await until('a stream arrives', () => w.arrived.length === 1)
    const ping = w.near.ping()
    w.near.close(new AppError('UNAVAILABLE', 'the session was replaced'))
    await assert.rejects(ping, /replaced/)
    assert.match(stream.errored?.message ?? '', /replaced/)
    assert.equal(reasonOf(await w.farClosed), 'PIPE_CLOSED_BY_PEER')
    assert.equal(w.arrived[0]?.destroyed, true)
    assert.throws(() => w.near.open(), /replaced/)
  })
})

suite('back-pressure', () => {
  test('ND-3 a stream nobody reads takes one window and no more, and holds up no other', async () => {
    const w = world()
    const stream = w.near.open()
    stream.write(Buffer.alloc(4 * WINDOW))
    await until(
      'a window is unread',
      () => w.far.unread === WINDOW - 16 * 1024 || w.far.unread === WINDOW,
    )
    await w.near.ping()
    assert.ok(w.far.unread <= WINDOW, `${w.far.unread} bytes unread`)
    const other = w.near.open()
    other.end('hello')
    await until('two streams arrive', () => w.arrived.length === 2)
    assert.equal((await buffer(w.arrived[1] as MuxStream)).toString(), 'hello')
  })

  test('ND-3 the window of a stream that is read grows, and what it grew by is given back', async () => {
    const w = world()
    const unreadOf = async (): Promise<number> => {
      const stream = w.near.open()
      await until('a stream arrives', () => w.arrived.length === 1)
      const far = w.arrived.pop() as MuxStream
      let got = 0
      far.on('data', (chunk: Buffer) => {
        got += chunk.length
        if (got >= 4 << 20) far.pause()
      })
      stream.write(Buffer.alloc(8 << 20))
      await until('4 MiB arrive', () => got >= 4 << 20)
      for (let i = 0; i < 4; i++) await w.near.ping()
      const unread = w.far.unread
      far.destroy()
      await until('the stream is closed', () => stream.closed)
      return unread
    }
    for (let i = 0; i < 40; i++) {
      const unread = await unreadOf()
      assert.ok(unread > 2 * WINDOW && unread <= WINDOW_MAX, `stream ${i}: ${unread} bytes unread`)
    }
  })

  test('ND-3 unread bytes over all streams are bounded: the stream that overflows is reset', async () => {
    const w = world({ streamsMax: 2000, far: { streamsMax: 2000 } })
    const streams = Array.from({ length: UNREAD_MAX / WINDOW + 40 }, () => {
      const stream = w.near.open()
      stream.write(Buffer.alloc(WINDOW))
      return stream
    })
    await until('one is reset', () => streams.filter((s) => s.destroyed).length >= 1)
    await w.near.ping()
    await w.near.ping()
    assert.ok(w.far.unread <= UNREAD_MAX)
    const shed = streams.find((s) => s.destroyed)
    assert.match(shed?.errored?.message ?? '', /out of memory/)
    for (const stream of w.arrived) stream.destroy()
    assert.equal(w.far.unread, 0)
  })

  test('ND-3 a peer that never reads is bounded in bytes and cut off at the deadline', async () => {
    const clock = fakeClock()
    const w = world({ clock })
    w.ends[1].hold(true)
    const streams = Array.from({ length: 200 }, () => w.near.open())
    for (const stream of streams) {
      const more = (): void => {
        while (stream.write(Buffer.alloc(16 * 1024)));
        stream.once('drain', more)
      }
      more()
    }
    await clock.advance(STALL_MS - 1)
    assert.equal(w.near.closed, false)
    const queued = w.ends[1].waiting()
    assert.ok(queued <= 256 * 1024 + 2 * 128 * 1024, `${queued} bytes in the pipe`)
    assert.ok(w.near.held <= 200 * 64 * 1024, `${w.near.held} bytes in the streams`)
    await clock.advance(1)
    const error = await w.nearClosed
    assert.equal(reasonOf(error), 'PEER_STALLED')
    assert.match(error?.message ?? '', /taken nothing for 20000 ms; \d+ bytes wait/)
    for (const stream of streams) assert.equal(reasonOf(stream.errored), 'PEER_STALLED')
  })

  test('ND-3 a peer that stalls and comes back in time is kept', async () => {
    const clock = fakeClock()
    const w = world({ clock, far: { onStream: (s) => void s.pipe(s) } })
    w.ends[1].hold(true)
    const stream = w.near.open()
    const sent = randomBytes(2 << 20)
    stream.end(sent)
    await clock.advance(STALL_MS - 1)
    w.ends[1].hold(false)
    assert.ok(sent.equals(await buffer(stream)))
    await clock.advance(3 * STALL_MS)
    assert.equal(w.near.closed, false)
  })

  test('ND-3 with too much waiting for a stalled peer no stream is opened', async () => {
    const w = world()
    w.ends[1].hold(true)
    const stream = w.near.open()
    stream.write(Buffer.alloc(HELD_MAX + PIPE_WINDOW))
    await until('256 KiB wait', () => w.ends[1].waiting() >= 256 * 1024)
    assert.throws(
      () => w.near.open(),
      (error) => reasonOf(error) === 'PEER_STALLED',
    )
    w.near.close()
  })
})

test('ND-3 the window of a pipe follows what the peer takes, between its bounds', async () => {
  const clock = fakeClock()
  const pace = new Pace(clock)
  const run = async (bytesPerMs: number): Promise<number> => {
    for (let i = 0; i < 100; i++) {
      await clock.advance(5)
      pace.delivered(bytesPerMs * 5)
    }
    return pace.window
  }
  assert.equal(await run(500), PIPE_WINDOW, 'a slow link: 4 Mbit/s')
  assert.ok(Math.abs((await run(80_000)) / (80_000 * 25) - 1) < 0.01, '25 ms of 80 MB/s')
  assert.equal(await run(1_000_000), PIPE_WINDOW_MAX)
  assert.equal(await run(500), PIPE_WINDOW, 'and back')
})

suite('turns', () => {
  /** The far side sees streams end in this order when everything waits at once. */
  async function endOrder(open: (near: Mux) => [string, MuxStream, number][]): Promise<string[]> {
    const order: string[] = []
    const names = new Map<number, string>()
    const w = world({
      far: {
        onStream: (s) => void s.resume().on('end', () => order.push(names.get(s.id) ?? '?')),
      },
    })
    w.ends[1].hold(true)
    const plan = open(w.near)
    for (const [name, stream, size] of plan) {
      names.set(stream.id, name)
      stream.end(Buffer.alloc(size))
    }
    await new Promise((resolve) => setImmediate(resolve))
    w.ends[1].hold(false)
    await until('all arrive', () => order.length === plan.length)
    w.near.close()
    return order
  }

  test('ND-3 a small call overtakes bulk that waits', async () => {
    const order = await endOrder((near) => [
      ['bulk', near.open(), 4 << 20],
      ['call', near.open(), 150],
    ])
    assert.deepEqual(order, ['call', 'bulk'])
  })

  test('ND-3 the class small overtakes bulk with more than a message to say', async () => {
    const order = await endOrder((near) => [
      ['bulk 1', near.open(), 8 << 20],
      ['bulk 2', near.open(), 8 << 20],
      ['exec', near.open('small'), 200 * 1024],
    ])
    assert.equal(order[0], 'exec')
  })

  test('ND-3 bulk streams share: a short one is not held up by a long one', async () => {
    const order = await endOrder((near) => [
      ['long', near.open(), 16 << 20],
      ['short', near.open(), 256 * 1024],
    ])
    assert.deepEqual(order, ['short', 'long'])
  })

  test('ND-3 bulk is not starved by a flood of the class small', async () => {
    let moved = 0
    let flooded = 0
    const w = world({
      far: {
        onStream: (s) =>
          void s.on('data', (chunk: Buffer) => {
            if (s.class === 'bulk') moved += chunk.length
            else flooded += chunk.length
          }),
      },
    })
    for (let i = 0; i < 40; i++) {
      const stream = w.near.open('small')
      const more = (): void => {
        while (stream.write(Buffer.alloc(16 * 1024)));
        stream.once('drain', more)
      }
      more()
    }
    const bulk = w.near.open('bulk')
    bulk.write(Buffer.alloc(2 << 20))
    await until('the bulk arrives', () => moved === 2 << 20)
    assert.ok(flooded > 2 * moved, 'and the small class had the larger share')
    w.near.close()
  })
})

suite('hostile peers', () => {
  const big = Buffer.alloc(PAYLOAD_MAX)
  const cases: [string, RegExp, Buffer[]][] = [
    [
      'data beyond credit',
      /beyond its credit/,
      Array.from({ length: 5 }, () => frameOf(FRAME.data, PAYLOAD_MAX, 1, big)),
    ],
    ['credit above the window', /4194304 are the most/, [frameOf(FRAME.credit, WINDOW_MAX, 1)]],
    ['credit for the pipe that it never carried', /credited more/, [frameOf(FRAME.credit, 1, 0)]],
    [
      'data for a stream never opened',
      /the last one opened is 1/,
      [frameOf(FRAME.data, 4, 9, Buffer.alloc(4))],
    ],
    ['data for stream 0', /the last one opened is 1/, [frameOf(FRAME.data, 4, 0, Buffer.alloc(4))]],
    ['a dialler that opens', /opens no streams/, [frameOf(FRAME.open, 0, 2)]],
    ['an oversized frame', /65537 bytes/, [frameOf(FRAME.data, PAYLOAD_MAX + 1, 1)]],
    ['an empty frame', /0 bytes/, [frameOf(FRAME.data, 0, 1)]],
    ['an unknown type', /type 99/, [frameOf(99, 0, 1)]],
    ['two ends', /ended twice/, [frameOf(FRAME.fin, 0, 1), frameOf(FRAME.fin, 0, 1)]],
    [
      'data after the end',
      /after its end/,
      [frameOf(FRAME.fin, 0, 1), frameOf(FRAME.data, 1, 1, Buffer.alloc(1))],
    ],
  ]
  for (const [name, message, frames] of cases)
    test(`ND-3 ${name} is cut off`, async () => {
      const [near, far] = memoryPipes()
      const { promise: closed, resolve } = Promise.withResolvers<AppError | undefined>()
      const mux = new Mux(near.pipe, { clock: systemClock, opens: true, onClose: resolve })
      const stream = mux.open()
      for (const bytes of frames) far.pipe.write(bytes)
      const error = await closed
      assert.match(error?.message ?? '', message)
      assert.equal(reasonOf(error), 'PROTOCOL')
      assert.equal(stream.destroyed, true)
    })

  test('ND-3 an acceptor that skips or repeats an id is cut off', async () => {
    for (const ids of [[2], [1, 1], [1, 3]]) {
      const [near, far] = memoryPipes()
      const { promise: closed, resolve } = Promise.withResolvers<AppError | undefined>()
      new Mux(far.pipe, { clock: systemClock, opens: false, onClose: resolve })
      for (const id of ids) near.pipe.write(frameOf(FRAME.open, 0, id))
      assert.equal(reasonOf(await closed), 'PROTOCOL')
    }
  })

  test('ND-3 pings whose answers are never read are bounded', async () => {
    const [near, far] = memoryPipes()
    const { promise: closed, resolve } = Promise.withResolvers<AppError | undefined>()
    new Mux(near.pipe, { clock: systemClock, opens: true, onClose: resolve })
    far.hold(true)
    const pings = Buffer.concat(
      Array.from({ length: 100_000 }, (_, id) => frameOf(FRAME.ping, 0, id)),
    )
    far.pipe.write(pings)
    far.pipe.write(pings)
    assert.equal(reasonOf(await closed), 'PEER_STALLED')
  })

  test('ND-3 a window of one-byte frames costs bytes, not objects', async () => {
    const [near, far] = memoryPipes()
    const mux = new Mux(near.pipe, { clock: systemClock, opens: true })
    mux.open()
    const ones = Buffer.concat(
      Array.from({ length: 50_000 }, () => frameOf(FRAME.data, 1, 1, Buffer.alloc(1))),
    )
    const before = process.memoryUsage().heapUsed
    far.pipe.write(ones)
    await until('30,000 bytes are unread', () => mux.unread > 30_000)
    assert.ok(process.memoryUsage().heapUsed - before < 64 << 20)
  })

  test('ND-3 any bytes: cut with PROTOCOL or harmless, never a throw', async () => {
    const header = fc
      .tuple(
        fc.integer({ min: 0, max: 9 }),
        fc.integer({ min: 0, max: 70_000 }),
        fc.integer({ min: 0, max: 3 }),
      )
      .map(([type, value, id]) =>
        frameOf(type, value, id, Buffer.alloc(type === FRAME.data ? Math.min(value, 2000) : 0)),
      )
    const noise = fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes))
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(header, noise), { maxLength: 40 }),
        fc.boolean(),
        async (pieces, opens) => {
          const [near, far] = memoryPipes()
          let closedWith: AppError | undefined
          const onClose = (error: AppError | undefined): void => {
            closedWith = error
          }
          const mux = new Mux(near.pipe, { clock: systemClock, opens, onClose })
          if (opens) mux.open().write('x')
          for (const piece of pieces) far.pipe.write(piece)
          await until('all is taken, or the pipe cut', () => mux.closed || near.waiting() === 0)
          if (mux.closed) assert.equal(reasonOf(closedWith), 'PROTOCOL')
          mux.close()
        },
      ),
      { numRuns: 200 },
    )
  })
})

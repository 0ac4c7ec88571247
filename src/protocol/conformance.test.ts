// One suite over both pipes: whatever the transport, a session sees the same.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import dgram from 'node:dgram'
import { once } from 'node:events'
import net from 'node:net'
import { buffer } from 'node:stream/consumers'
import { after, suite, test } from 'node:test'
import { systemClock as clock } from '#lib/clock.ts'
import type { AppError } from '#lib/error.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { dial } from '#protocol/dial.ts'
import { FRAME } from '#protocol/frame.ts'
import { Framed } from '#protocol/framed.ts'
import { createIdentity, type Identity } from '#protocol/identity.ts'
import { Mux, type MuxOptions } from '#protocol/mux.ts'
import { WINDOW, type MuxStream } from '#protocol/mux-stream.ts'
import type { ListenOptions, Listener, Pipe, Transport } from '#protocol/pipe.ts'
import { listenQuic } from '#protocol/quic-pipe.ts'
import { signStatement, verifyStatement } from '#protocol/statement.ts'
import { listenTls } from '#protocol/tls-pipe.ts'
import { frameOf } from '#protocol/test-frames.ts'

const HOST = '127.0.0.1'
const engine = await createIdentity(systemRandom)
const node = await createIdentity(systemRandom)

async function listen(transport: Transport, options: ListenOptions): Promise<Listener> {
  if (transport === 'tls') return listenTls(options)
  const listening = listenQuic(options)
  assert.equal(listening.outcome, 'listening')
  return (listening as { listener: Listener }).listener
}

async function dialOne(transport: Transport, port: number, identity = node): Promise<Pipe> {
  const dialled = await dial({ host: HOST, port, identity, clock, transports: [transport] })
  assert.equal(dialled.outcome, 'connected', JSON.stringify(dialled))
  return (dialled as { pipe: Pipe }).pipe
}

/** A listener of a transport, and how to take the pipes that come. */
class Gate {
  readonly transport: Transport
  readonly refused: AppError[] = []
  listener!: Listener
  #pipes: Pipe[] = []
  #waiting: ((pipe: Pipe) => void)[] = []
  readonly #all: Pipe[] = []
  accepted = 0

  constructor(transport: Transport) {
    this.transport = transport
  }

  async start(identity: Identity = engine): Promise<this> {
    this.listener = await listen(this.transport, {
      host: HOST,
      port: 0,
      identity,
      clock,
      onRefused: (error) => this.refused.push(error),
      onPipe: (pipe) => {
        this.accepted++
        this.#all.push(pipe)
        const taker = this.#waiting.shift()
        if (taker) taker(pipe)
        else this.#pipes.push(pipe)
      },
    })
    return this
  }

  next(): Promise<Pipe> {
    const pipe = this.#pipes.shift()
    return pipe ? Promise.resolve(pipe) : new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** One connection: the acceptor's end and the dialler's. */
  async connect(): Promise<{ near: Pipe; far: Pipe }> {
    const [near, far] = await Promise.all([
      this.next(),
      dialOne(this.transport, this.listener.port),
    ])
    this.#all.push(far)
    return { near, far }
  }

  async stop(): Promise<void> {
    for (const pipe of this.#all) pipe.destroy()
    await this.listener.close()
  }

  async muxes(
    onStream: (stream: MuxStream) => void,
    options: Partial<MuxOptions> = {},
  ): Promise<{ near: Mux; far: Mux }> {
    const { near, far } = await this.connect()
    return {
      near: new Mux(near, { clock, opens: true, ...options }),
      far: new Mux(far, { clock, opens: false, onStream, streamsMax: 4096 }),
    }
  }
}

const reasonOf = (error: unknown): unknown => (error as AppError | undefined)?.details?.reason
const closed = (pipe: Pipe): Promise<AppError | undefined> =>
  new Promise((resolve) => pipe.onClose(resolve))

/** Writes `total` bytes of a repeating block, as fast as the stream takes them. */
function pour(stream: MuxStream, total: number, block = Buffer.alloc(64 * 1024, 'x')): void {
  let left = total
  const more = (): void => {
    while (left > 0) {
      const size = Math.min(left, block.length)
      left -= size
      if (!stream.write(block.subarray(0, size))) return void stream.once('drain', more)
    }
    stream.end()
  }
  more()
}

for (const transport of ['quic', 'tls'] as const)
  suite(transport, () => {
    const gates: Gate[] = []
    const open = async (): Promise<Gate> => {
      const gate = await new Gate(transport).start()
      gates.push(gate)
      return gate
    }
    after(() => Promise.all(gates.map((gate) => gate.stop())))

    test('ND-3 both ends say whose key is at the other, and the dialler which transport', async () => {
      const gate = await open()
      const { near, far } = await gate.connect()
      assert.equal(far.peer, engine.publicKey)
      assert.equal(near.peer, node.publicKey)
      assert.deepEqual([near.transport, far.transport], [transport, transport])
      assert.deepEqual(far.remote, { host: HOST, port: gate.listener.port })
      assert.equal(near.remote.host, HOST)
      assert.equal(near.certificate !== undefined, transport === 'tls')
      near.destroy()
      assert.equal(
        reasonOf(await closed(far))
          ?.toString()
          .startsWith('PIPE_'),
        true,
      )
    })

    test('ND-4 what is sent before a close arrives: a refusal is read before the end', async () => {
      const gate = await open()
      const { near, far } = await gate.connect()
      const framed = new Framed(near)
      for (let i = 0; i < 50; i++) framed.send({ t: 'refused', i, text: 'x'.repeat(10_000) })
      framed.close()
      const reader = new Framed(far)
      for (let i = 0; i < 50; i++) assert.equal(((await reader.next()) as { i: number }).i, i)
      await assert.rejects(reader.next(), (error) => reasonOf(error) === 'PIPE_CLOSED_BY_PEER')
      assert.equal(await closed(near), undefined)
    })

    test('ND-3 opening messages, then a multiplexer on the same connection', async () => {
      const gate = await open()
      const { near, far } = await gate.connect()
      const [engineSide, nodeSide] = [new Framed(near), new Framed(far)]
      engineSide.send({ t: 'hello' })
      assert.deepEqual(await nodeSide.next(), { t: 'hello' })
      nodeSide.send({ t: 'join' })
      assert.deepEqual(await engineSide.next(), { t: 'join' })
      engineSide.send({ t: 'joined' })
      const mux = new Mux(engineSide.takeOver(), { clock, opens: true }) // its first frames ride behind `joined`
      const stream = mux.open()
      stream.end('hello')
      assert.deepEqual(await nodeSide.next(), { t: 'joined' })
      new Mux(nodeSide.takeOver(), { clock, opens: false, onStream: (s) => void s.pipe(s) })
      assert.equal((await buffer(stream)).toString(), 'hello')
      mux.close()
    })

    test('ND-3 half-close: the answer comes after the end of the question', async () => {
      const gate = await open()
      const { near } = await gate.muxes((stream) => {
        const hash = createHash('sha256')
        stream.on('data', (chunk: Buffer) => hash.update(chunk))
        stream.on('end', () => {
          stream.write(hash.digest())
          stream.end(Buffer.alloc(300_000, 'z'))
        })
      })
      const question = randomBytes(700_000)
      const stream = near.open()
      stream.end(question)
      const answer = await buffer(stream)
      assert.ok(answer.subarray(0, 32).equals(createHash('sha256').update(question).digest()))
      assert.equal(answer.length, 300_032)
      await until('the stream is forgotten', () => near.size === 0)
      near.close()
    })

    test('ND-3 reset: either side fails one stream and hurts no other', async () => {
      const gate = await open()
      const far: MuxStream[] = []
      const { near } = await gate.muxes((stream) => {
        far.push(stream)
        stream.pipe(stream)
      })
      const [a, b, c] = [near.open(), near.open(), near.open()]
      for (const stream of [a, b, c]) stream.write('hello')
      await until('three streams', () => far.length === 3)
      a.destroy()
      far[1]?.destroy()
      await until('both ends are gone', () => far[0]?.closed === true && b.closed)
      assert.equal(reasonOf(far[0]?.errored), 'STREAM_RESET')
      assert.equal(reasonOf(b.errored), 'STREAM_RESET')
      c.end(' world')
      assert.equal((await buffer(c)).toString(), 'hello world')
      near.close()
    })

    test('ND-3 back-pressure: a writer waits for its reader, and nothing is lost', async () => {
      const gate = await open()
      let reader: MuxStream | undefined
      const { near, far } = await gate.muxes((stream) => {
        reader = stream
      })
      const stream = near.open()
      const sent = randomBytes(4 << 20)
      let written = 0
      const more = (): void => {
        while (written < sent.length) {
          written += 16 * 1024
          if (!stream.write(sent.subarray(written - 16 * 1024, written)))
            return void stream.once('drain', more)
        }
        stream.end()
      }
      more()
      await until('the window is full', () => far.unread >= WINDOW - 16 * 1024)
      await near.ping()
      assert.ok(
        written <= WINDOW + 256 * 1024,
        `${written} bytes were taken of a reader that sleeps`,
      )
      assert.ok(sent.equals(await buffer(reader as MuxStream)))
      near.close()
    })

    test('ND-3 1 GiB in one stream: every byte, in flat memory', async () => {
      const total = 2 ** 30
      const gate = await open()
      const { near } = await gate.muxes((stream) => {
        let got = 0
        stream.on('data', (chunk: Buffer) => {
          got += chunk.length
          if (got === 128 << 20) stream.write('m')
        })
        stream.on('end', () => stream.end(String(got)))
      })
      const stream = near.open()
      let peak = 0
      const watch = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage.rss())
      }, 20)
      pour(stream, total)
      let before = 0
      let said = ''
      for await (const chunk of stream) {
        const text = String(chunk)
        if (text.startsWith('m')) before = process.memoryUsage.rss()
        said += text.replace('m', '')
      }
      clearInterval(watch)
      assert.equal(said, String(total))
      const grew = Math.round((peak - (before || peak)) / 2 ** 20)
      assert.ok(grew < 160, `memory grew by ${grew} MiB while 1 GiB went through`)
      near.close()
    })

    test('ND-3 1,000 streams at once, each answered', async () => {
      const gate = await open()
      const { near, far } = await gate.muxes((stream) => void stream.pipe(stream), {
        streamsMax: 1000,
      })
      const work = Array.from({ length: 1000 }, async (_, at) => {
        const stream = near.open()
        stream.end(`stream ${at}`)
        assert.equal((await buffer(stream)).toString(), `stream ${at}`)
      })
      assert.equal(near.size, 1000)
      assert.throws(
        () => near.open(),
        (error) => reasonOf(error) === 'MUX_STREAMS_MAX',
      )
      await Promise.all(work)
      await until('all are forgotten', () => near.size === 0 && far.size === 0)
      near.close()
    })

    test('ND-3 100 unread streams each way leave control below 100 ms and calls answered', async () => {
      const gate = await open()
      const { near } = await gate.muxes((stream) =>
        stream.once('data', (first: Buffer) => {
          if (first[0] === 0x65) return void stream.pipe(stream).write(first)
          stream.pause()
          if (first[0] === 0x67) pour(stream, 2 ** 30)
        }),
      )
      const control = await gate.connect()
      const echo = new Framed(control.far)
      echo.onMessage((message) => void echo.send(message))
      const asking = new Framed(control.near)
      for (let i = 0; i < 100; i++) {
        near.open().write('g') // they write all they can, we do not read
        const stream = near.open()
        stream.write('n') // we write all we can, they do not read
        pour(stream, 2 ** 30)
      }
      await until('the windows fill', () => near.unread >= 20 * WINDOW)
      const times: number[] = []
      for (let i = 0; i < 41; i++) {
        const began = performance.now()
        asking.send({ i })
        await asking.next()
        times.push(performance.now() - began)
      }
      times.sort((a, b) => a - b)
      const median = times[20] ?? Infinity
      assert.ok(median < 100, `the median ping took ${median.toFixed(1)} ms`)
      const call = near.open()
      call.end('echo')
      assert.equal((await buffer(call)).toString(), 'echo')
      near.close()
    })

    test('ND-19 a peer killed with -9 ends the pipe, its streams and its pings', async () => {
      const gate = await open()
      const program = `
        const { dial } = await import('#protocol/dial.ts')
        const { loadIdentity } = await import('#protocol/identity.ts')
        const { systemClock: clock } = await import('#lib/clock.ts')
        const { Mux } = await import('#protocol/mux.ts')
        const identity = await loadIdentity(process.env.KEY)
        const dialled = await dial({ host: '${HOST}', port: ${gate.listener.port}, identity, clock, transports: ['${transport}'] })
        new Mux(dialled.pipe, { clock, opens: false, onStream: (s) => s.pause() })`
      const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
        stdio: 'ignore',
        env: { KEY: node.privateKeyPem },
      })
      const pipe = await gate.next()
      const over = closed(pipe)
      const mux = new Mux(pipe, { clock, opens: true, stallMs: 1_500 })
      const streams = Array.from({ length: 20 }, () => mux.open())
      await mux.ping()
      child.kill('SIGKILL')
      for (const stream of streams) pour(stream, 2 ** 30)
      const ping = mux.ping().catch((error) => error as AppError)
      const error = await over
      assert.ok(
        ['PIPE_LOST', 'PIPE_CLOSED_BY_PEER', 'PEER_STALLED'].includes(String(reasonOf(error))),
      )
      assert.equal(reasonOf(await ping), reasonOf(error))
      for (const stream of streams) assert.equal(reasonOf(stream.errored), reasonOf(error))
    })

    test('ND-3 a peer that never reads is cut off, with bounded memory', async () => {
      const gate = await open()
      const { near, far } = await gate.connect()
      const over = closed(near)
      const mux = new Mux(near, { clock, opens: true, stallMs: 500 })
      const streams = Array.from({ length: 100 }, () => mux.open())
      let written = 0
      for (const stream of streams) {
        const more = (): void => {
          do written += 16 * 1024
          while (stream.write(Buffer.alloc(16 * 1024)))
          stream.once('drain', more)
        }
        more()
      }
      const error = await over
      assert.equal(reasonOf(error), 'PEER_STALLED')
      assert.match(error?.message ?? '', /has taken nothing for 500 ms; \d+ bytes wait/)
      assert.ok(written < 24 << 20, `${written} bytes were taken for a peer that reads nothing`)
      far.destroy()
    })

    const hostile: [string, RegExp, Buffer][] = [
      [
        'data beyond credit',
        /beyond its credit/,
        Buffer.concat(
          Array.from({ length: 5 }, () => frameOf(FRAME.data, 65_536, 1, Buffer.alloc(65_536))),
        ),
      ],
      ['excess credit', /are the most/, frameOf(FRAME.credit, 2 ** 24 - 1, 1)],
      ['an unopened id', /the last one opened is 1/, frameOf(FRAME.fin, 0, 7)],
      ['an oversized frame', /1 to 65536 are allowed/, frameOf(FRAME.data, 65_537, 1)],
      ['noise', /frame|payload|stream|pipe/, Buffer.alloc(1 << 16, 0xa7)],
    ]
    test('ND-3 a peer that breaks the protocol is cut off at once, and told nothing', async () => {
      const gate = await open()
      for (const [name, message, bytes] of hostile) {
        const { near, far } = await gate.connect()
        const over = closed(near)
        new Mux(near, { clock, opens: true }).open()
        far.write(bytes)
        const error = await over
        assert.equal(reasonOf(error), 'PROTOCOL', name)
        assert.match(error?.message ?? '', message, name)
        assert.ok(await closed(far), name)
      }
    })

    test('ND-3 garbage at the port disturbs nobody', async () => {
      const gate = await open()
      const before = await gate.connect()
      if (transport === 'quic') {
        const socket = dgram.createSocket('udp4')
        for (let i = 0; i < 500; i++)
          socket.send(randomBytes(1 + ((i * 7) % 1400)), gate.listener.port, HOST)
        for (let i = 0; i < 100; i++) {
          const initial = randomBytes(1200)
          initial[0] = 0xc0 // a long header of version 1: parsed further before it is refused
          initial.writeUInt32BE(1, 1)
          socket.send(initial, gate.listener.port, HOST)
        }
        await new Promise<void>((resolve) =>
          socket.send('', gate.listener.port, HOST, () => resolve()),
        )
        socket.close()
      } else
        for (let i = 0; i < 20; i++) {
          const socket = net.connect(gate.listener.port, HOST)
          socket.on('error', () => {}).resume()
          socket.end(randomBytes(4096))
          await once(socket, 'close')
        }
      const after = await gate.connect()
      before.near.write(Buffer.from('still here'))
      const [chunk] = await new Promise<[Buffer]>((resolve) =>
        before.far.receive((c) => resolve([c])),
      )
      assert.equal(chunk.toString(), 'still here')
      assert.equal(gate.accepted, 2)
      after.near.destroy()
    })

    test('ND-3 a recorded handshake, sent again, is nobody', async () => {
      const gate = await open()
      const recorded =
        transport === 'quic'
          ? await recordUdp(gate.listener.port)
          : await recordTcp(gate.listener.port)
      assert.ok(recorded.length > 0)
      await gate.next()
      assert.equal(gate.accepted, 1)
      if (transport === 'quic') await replayUdp(recorded, gate.listener.port)
      else await replayTcp(recorded, gate.listener.port)
      const after = await gate.connect()
      assert.equal(gate.accepted, 2, 'only the real dial was let in')
      after.near.destroy()
    })

    test('ND-2 an engine whose statement is of another root is refused before a secret is sent', async () => {
      const gate = await open()
      const [root, other] = [await createIdentity(systemRandom), await createIdentity(systemRandom)]
      const { near, far } = await gate.connect()
      const now = Date.now()
      const dates = { notBefore: now, notAfter: now + 60_000 }
      const said = { engineKey: engine.publicKey, engineId: 'eng_1', ...dates }
      const framed = new Framed(near)
      framed.send({ good: signStatement(root, said), bad: signStatement(other, said) })
      const { good, bad } = (await new Framed(far).next()) as Record<string, Uint8Array>
      const expected = { root: { publicKey: root.publicKey }, peer: far.peer, now }
      assert.equal(verifyStatement(good as Uint8Array, expected).engineId, 'eng_1')
      assert.throws(
        () => verifyStatement(bad as Uint8Array, expected),
        (error) => reasonOf(error) === 'STATEMENT_WRONG_ROOT',
      )
      framed.destroy()
    })

    test('ND-4 300 dials and closes leave no socket behind', async () => {
      const gate = await open()
      const rounds = async (count: number): Promise<void> => {
        for (let i = 0; i < count; i++) {
          const { near, far } = await gate.connect()
          far.destroy()
          await closed(near)
        }
      }
      const { readdirSync } = await import('node:fs')
      const sockets = (): number => readdirSync('/proc/self/fd').length
      await rounds(50)
      const before = sockets()
      await rounds(250)
      await until('the sockets are closed', () => sockets() <= before + 10)
    })
  })

/** The client's bytes of one whole connection, seen by a front in the middle. */
async function recordTcp(port: number): Promise<Buffer[]> {
  const recorded: Buffer[] = []
  const front = net.createServer((client) => {
    const server = net.connect(port, HOST)
    client.on('data', (chunk: Buffer) => {
      recorded.push(chunk)
      server.write(chunk)
    })
    server.pipe(client)
    for (const socket of [client, server]) socket.on('error', () => {})
    client.on('close', () => server.destroy())
  })
  await new Promise<void>((resolve) => front.listen(0, HOST, resolve))
  const pipe = await dialOne('tls', (front.address() as net.AddressInfo).port)
  pipe.destroy()
  front.close()
  return recorded
}

async function replayTcp(recorded: Buffer[], port: number): Promise<void> {
  for (const flights of [recorded, [Buffer.concat(recorded)], recorded.slice(0, 1)]) {
    const socket = net.connect(port, HOST)
    socket.on('error', () => {})
    for (const bytes of flights) socket.write(bytes)
    socket.end()
    socket.resume()
    await once(socket, 'close')
  }
}

async function recordUdp(port: number): Promise<Buffer[]> {
  const recorded: Buffer[] = []
  const front = dgram.createSocket('udp4')
  const server = dgram.createSocket('udp4')
  let client: dgram.RemoteInfo | undefined
  front.on('message', (bytes, from) => {
    client = from
    recorded.push(Buffer.from(bytes))
    server.send(bytes, port, HOST)
  })
  server.on('message', (bytes) => client && front.send(bytes, client.port, client.address))
  await new Promise<void>((resolve) => front.bind(0, HOST, resolve))
  const pipe = await dialOne('quic', front.address().port)
  pipe.destroy()
  await new Promise((resolve) => setImmediate(resolve))
  front.close()
  server.close()
  return recorded
}

async function replayUdp(recorded: Buffer[], port: number): Promise<void> {
  const socket = dgram.createSocket('udp4')
  for (let round = 0; round < 3; round++)
    for (const bytes of round === 0 ? recorded.slice(0, 1) : recorded)
      await new Promise<void>((resolve) => socket.send(bytes, port, HOST, () => resolve()))
  socket.close()
}

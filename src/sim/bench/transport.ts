// What the transport carries: framed requests a second and bulk, over both pipes, between two processes; and bulk beside
// the bare QUIC addon in the same run, because only ratios hold on a machine that others load too.
//
// This file is also the far process: started with `far` as its first argument.
import { spawn, type ChildProcess } from 'node:child_process'
import { createRequire } from 'node:module'
import { systemClock as clock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'
import { dial } from '#protocol/dial.ts'
import { createIdentity, loadIdentity, type Identity } from '#protocol/identity.ts'
import { Mux } from '#protocol/mux.ts'
import type { MuxStream } from '#protocol/mux-stream.ts'
import type { ListenOptions, Listener, Transport } from '#protocol/pipe.ts'
import { listenQuic, quicAvailability } from '#protocol/quic-pipe.ts'
import { listenTls } from '#protocol/tls-pipe.ts'
import { percentile, round, type Row } from '#sim/bench/row.ts'

const HOST = '127.0.0.1'
const CALLERS = 32
const ASK_BYTES = 150
const ANSWER_BYTES = 270
const WARM_MS = 500
const MEASURE_MS = 2_000
const BULK_BYTES = 64 << 20
const BULK_ROUNDS = 15
const BULK_WARM_ROUNDS = 2
const BLOCK = Buffer.alloc(64 * 1024, 'x')

/** Requests a second over both pipes, bulk over QUIC, and bulk beside the bare addon. About 15 s. */
export async function benchTransport(): Promise<Row[]> {
  const results: Row[] = []
  for (const transport of ['quic', 'tls'] as const) {
    if (transport === 'quic' && !quicAvailability().available) continue
    const world = await startWorld(transport)
    try {
      const value = Math.round(await requestsPerSecond(world.mux))
      results.push({ name: `requests_per_s_${transport}`, value, unit: 'req/s' })
      if (transport === 'quic') results.push(...(await bulkBesideLibrary(world)))
    } finally {
      await world.stop()
    }
  }
  return results
}

/** Callers with one pooled stream each: a request of 150 bytes, an answer of 270. */
async function requestsPerSecond(mux: Mux): Promise<number> {
  const streams = Array.from({ length: CALLERS }, () => mux.open())
  for (const stream of streams) stream.write('p')
  await callAll(streams, WARM_MS)
  const began = clock.monotonic()
  const done = await callAll(streams, MEASURE_MS)
  const seconds = (clock.monotonic() - began) / 1000
  for (const stream of streams) stream.destroy()
  return done / seconds
}

async function callAll(streams: MuxStream[], forMs: number): Promise<number> {
  const until = clock.monotonic() + forMs
  const ask = Buffer.alloc(ASK_BYTES, 'r')
  const one = async (stream: MuxStream): Promise<number> => {
    let [calls, got] = [0, 0]
    let settle = (): void => {}
    const take = (chunk: Buffer): void => {
      got += chunk.length
      if (got < ANSWER_BYTES) return
      got -= ANSWER_BYTES
      settle()
    }
    stream.on('data', take)
    for (; clock.monotonic() < until; calls++)
      await new Promise<void>((resolve) => {
        settle = resolve
        stream.write(ask)
      })
    stream.off('data', take)
    return calls
  }
  const calls = await Promise.all(streams.map(one))
  return calls.reduce((sum, each) => sum + each, 0)
}

/** Alternating short rounds and the median of the pairs' ratios: a load that comes and goes hits both. */
async function bulkBesideLibrary(world: World): Promise<Row[]> {
  const ours: number[] = []
  const bare: number[] = []
  const ratios: number[] = []
  for (let each = 0; each < BULK_ROUNDS; each++) {
    const peer = await rateOf(() => world.sendBare(BULK_BYTES))
    const own = await rateOf(() => sendBulk(world.mux, BULK_BYTES))
    if (each < BULK_WARM_ROUNDS) continue
    bare.push(peer)
    ours.push(own)
    ratios.push(own / peer)
  }
  const ratio = round(percentile(ratios, 0.5))
  const peer = `the bare addon's ${Math.round(percentile(bare, 0.5))} MB/s`
  return [
    { name: 'stream_mb_s_quic', value: Math.round(percentile(ours, 0.5)), unit: 'MB/s' },
    { name: 'stream_vs_library', value: ratio, unit: 'of the library', peer, ratio },
  ]
}

async function rateOf(work: () => Promise<void>): Promise<number> {
  const began = clock.monotonic()
  await work()
  return BULK_BYTES / 1e6 / ((clock.monotonic() - began) / 1000)
}

/** Resolves when the far side has counted every byte. */
function sendBulk(mux: Mux, bytes: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const stream = mux.open()
    let left = bytes
    const more = (): void => {
      for (; left > 0; left -= BLOCK.length)
        if (!stream.write(BLOCK)) {
          left -= BLOCK.length
          return void stream.once('drain', more)
        }
      stream.end()
    }
    stream.on('error', reject)
    stream.on('data', (chunk: Buffer) => {
      if (chunk.toString() === String(bytes)) resolve()
      else reject(new Error(`the far side counted ${chunk.toString()} of ${bytes} bytes`))
    })
    stream.write('s')
    more()
  })
}

// The near process: the acceptor, which opens streams.

type World = { mux: Mux; sendBare(bytes: number): Promise<void>; stop(): Promise<void> }
type Orders = { transport: Transport; port: number; barePort: number; keyPem: string }

async function startWorld(transport: Transport): Promise<World> {
  const [near, far] = [await createIdentity(systemRandom), await createIdentity(systemRandom)]
  let arrived = (_mux: Mux): void => {}
  const joined = new Promise<Mux>((resolve) => {
    arrived = resolve
  })
  const listener = await listen(transport, {
    host: HOST,
    port: 0,
    identity: near,
    clock,
    onPipe: (pipe) => arrived(new Mux(pipe, { clock, opens: true })),
  })
  const bare = transport === 'quic' ? startBare(near) : undefined
  const child = spawn(process.execPath, [import.meta.filename, 'far'], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const barePort = bare?.port ?? 0
  const orders: Orders = { transport, port: listener.port, barePort, keyPem: far.privateKeyPem }
  child.send(orders)
  const mux = await Promise.race([joined, failureOf(child)])
  return {
    mux,
    sendBare: async (bytes) => bare?.send(bytes),
    stop: async () => {
      child.removeAllListeners('exit')
      mux.close()
      child.kill('SIGKILL')
      bare?.stop()
      await listener.close()
    },
  }
}

async function listen(transport: Transport, options: ListenOptions): Promise<Listener> {
  if (transport === 'tls') return listenTls(options)
  const listening = listenQuic(options)
  if (listening.outcome === 'unavailable') throw new Error(listening.reason)
  return listening.listener
}

const failureOf = (child: ChildProcess): Promise<never> =>
  new Promise((_, reject) =>
    child.once('exit', (code) => reject(new Error(`the far process ended with ${code}`))),
  )

// The library as it is: one QUIC stream of the addon, configured as the pipe configures it, with nothing around it.

type AddonStream = {
  read(max: number): Promise<Uint8Array | null>
  write(bytes: Uint8Array): Promise<void>
}
type AddonConnection = {
  outboundStream(): Promise<AddonStream>
  inboundStream(): Promise<AddonStream>
}
type Addon = {
  QuinnConfig: new (config: object) => object
  Server: new (
    config: object,
    host: string,
    port: number,
  ) => { inboundConnection(): Promise<AddonConnection>; port(): number; abort(): void }
  Client: new (
    config: object,
    family: number,
  ) => { outboundConnection(host: string, port: number): Promise<AddonConnection> }
}

function addonAndConfig(identity: Identity): { addon: Addon; config: object } {
  const load = createRequire(import.meta.url)
  const addon = load('@chainsafe/libp2p-quic-linux-x64-gnu') as Addon
  const config = new addon.QuinnConfig({
    privateKeyProto: identity.libp2pKey,
    handshakeTimeout: 5_000,
    maxIdleTimeout: 15_000,
    keepAliveInterval: 4_000,
    maxConcurrentStreamLimit: 8,
    maxStreamData: 2 << 20,
    maxConnectionData: 2 << 20,
    receiveBufferSize: 2 << 20,
    sendBufferSize: 2 << 20,
  })
  return { addon, config }
}

function startBare(identity: Identity): {
  port: number
  send(bytes: number): Promise<void>
  stop(): void
} {
  const { addon, config } = addonAndConfig(identity)
  const server = new addon.Server(config, HOST, 0)
  const stream = server.inboundConnection().then((connection) => connection.inboundStream())
  stream.catch(() => {})
  return {
    port: server.port(),
    stop: () => server.abort(),
    async send(bytes) {
      const to = await stream
      for (let left = bytes; left > 0; left -= BLOCK.length) await to.write(BLOCK)
      await to.read(1) // the far side answers when it has counted them all
    },
  }
}

// The far process: a node that answers.

async function answer({ transport, port, barePort, keyPem }: Orders): Promise<void> {
  const identity = await loadIdentity(keyPem)
  const dialled = await dial({ host: HOST, port, identity, clock, transports: [transport] })
  if (dialled.outcome !== 'connected') throw new Error(dialled.message)
  const onStream = (stream: MuxStream): void =>
    void stream.once('data', (first: Buffer) => {
      const order = first.toString('latin1', 0, 1)
      if (first.length > 1) stream.unshift(first.subarray(1))
      if (order === 'p') answerCalls(stream)
      else countBulk(stream)
    })
  new Mux(dialled.pipe, { clock, opens: false, onStream, onClose: () => process.exit() })
  if (barePort > 0) await countBare(identity, barePort)
}

function answerCalls(stream: MuxStream): void {
  const reply = Buffer.alloc(ANSWER_BYTES, 'a')
  let got = 0
  stream.on('data', (chunk: Buffer) => {
    for (got += chunk.length; got >= ASK_BYTES; got -= ASK_BYTES) stream.write(reply)
  })
}

function countBulk(stream: MuxStream): void {
  let got = 0
  stream.on('data', (chunk: Buffer) => {
    got += chunk.length
  })
  stream.on('end', () => stream.end(String(got)))
}

async function countBare(identity: Identity, port: number): Promise<void> {
  const { addon, config } = addonAndConfig(identity)
  const connection = await new addon.Client(config, 0).outboundConnection(HOST, port)
  const stream = await connection.outboundStream()
  await stream.write(Buffer.of(0)) // a stream is seen by the other side only when something comes
  for (let got = 0; ;) {
    const chunk = await stream.read(64 * 1024)
    if (chunk === null) return
    got += chunk.length
    for (; got >= BULK_BYTES; got -= BULK_BYTES) await stream.write(Buffer.of(1))
  }
}

if (process.argv[2] === 'far' && import.meta.main)
  process.once('message', (orders) => void answer(orders as Orders))

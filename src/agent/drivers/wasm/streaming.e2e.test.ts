// An invocation from its stream to its child and back, with real children: both ways at once, and held back.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { duplexPair } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { sha256Hex } from '#lib/bytes.ts'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { FramedStream } from '#protocol/framed-stream.ts'
import type { FromInvocation, InvokeHeader } from '#protocol/messages.ts'
import { prepared, preview1 } from '#wasm/fixtures/run-wat.ts'
import { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'
import { serveInvocation } from '#agent/drivers/wasm/invocation.ts'
import { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

const MIB = 1024 * 1024
const WRITE_BYTES = 512 * 1024

/** Writes 512 KiB `count` times, then exits 7. */
const flood = (count: number): string =>
  preview1(
    ['proc_exit'],
    `(local $i i32)
     (loop $l
       (call $print (i32.const 1024) (i32.const ${WRITE_BYTES}))
       (local.set $i (i32.add (local.get $i) (i32.const 1)))
       (br_if $l (i32.lt_u (local.get $i) (i32.const ${count}))))
     (call $proc_exit (i32.const 7))`,
    '(memory (export "memory") 10)',
  )

/** Says 'hi', then what it reads, until the end. */
const GREETS = preview1(
  ['fd_read'],
  `(local $n i32)
   (i32.store16 (i32.const 1024) (i32.const 0x6968)) (call $print (i32.const 1024) (i32.const 2))
   (loop $l
     (i32.store (i32.const 16) (i32.const 1024)) (i32.store (i32.const 20) (i32.const 4096))
     (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
     (local.set $n (i32.load (i32.const 24)))
     (if (local.get $n) (then (call $print (i32.const 1024) (local.get $n)) (br $l))))`,
)

const SPIN = preview1([], '(loop $l (br $l))')

type Node = {
  pool: RunnerPool
  /** Begins an invocation of `wat`; the engine's end of its stream. */
  invoke(
    wat: string,
    spec?: Partial<InvokeHeader>,
  ): Promise<{ engine: FramedStream; served: Promise<void> }>
}

async function nodeOf(t: TestContext): Promise<Node> {
  const dataDir = await mkdtemp(join(tmpdir(), 'clutch-streaming-'))
  const cache = await ArtifactCache.open(dataDir)
  const pool = new RunnerPool({
    clock: systemClock,
    node: process.execPath,
    memMbMax: 4_000,
    artifact: async (sha256) => (await cache.read(sha256)) ?? assert.fail('no such artifact'),
  })
  t.after(async () => {
    await pool.close()
    await rm(dataDir, { recursive: true, force: true })
  })
  return {
    pool,
    async invoke(wat, spec = {}) {
      const bytes = await prepared(wat)
      const artifact = { sha256: sha256Hex(bytes), bytes: bytes.length }
      const [ours, theirs] = duplexPair({ highWaterMark: 64 * 1024 })
      const engine = new FramedStream(theirs)
      theirs.on('error', () => undefined)
      // As a reset of the multiplexer's does.
      theirs.on('close', () => ours.destroy())
      const header: InvokeHeader = {
        t: 'invoke',
        id: 'inv_1',
        functionId: artifact.sha256.slice(0, 20),
        artifact,
        memMb: 64,
        cpuMillis: 1000,
        timeoutMs: 30_000,
        args: [],
        env: [],
        ...spec,
      }
      const served = serveInvocation(
        { clock: systemClock, cache, pool },
        header,
        new FramedStream(ours),
      )
      const said = (await engine.read()) as FromInvocation
      if (said.t === 'artifact' && !said.have) await engine.write({ t: 'artifact', bytes })
      return { engine, served }
    },
  }
}

type Heard = { stdout: number; text: string; result: Extract<FromInvocation, { t: 'result' }> }

async function hearAll(engine: FramedStream): Promise<Heard> {
  const heard = { stdout: 0, text: '' }
  for (;;) {
    const message = (await engine.read()) as FromInvocation | undefined
    if (message?.t === 'result') return { ...heard, result: message }
    assert.equal(message?.t, 'stdout')
    if (message?.t !== 'stdout') continue
    heard.stdout += message.bytes.length
    if (heard.stdout < 1000) heard.text += Buffer.from(message.bytes).toString()
  }
}

test('FN-9 a whole stdout passes through the node as fast as it is read, and no faster', async (t) => {
  const node = await nodeOf(t)
  const { engine, served } = await node.invoke(flood(400), { stdout: 'whole' })
  await engine.write({ t: 'stdin-end' })
  // Nobody reads: the guest is held back, and this process holds little of the 200 MB.
  await until('it runs', () => node.pool.size === 1)
  const before = process.memoryUsage().rss
  await systemClock.sleep(500)
  assert.ok(process.memoryUsage().rss - before < 32 * MIB)
  const { stdout, result } = await hearAll(engine)
  await served
  assert.equal(stdout, 400 * WRITE_BYTES)
  assert.deepEqual(result.outcome, { kind: 'exited', exitCode: 7 })
  assert.equal(result.stdoutTruncated, false)
})

test('FN-3 a stdout that is cut ends at its megabyte though nobody reads while the guest runs', async (t) => {
  const node = await nodeOf(t)
  const { engine, served } = await node.invoke(flood(400))
  await engine.write({ t: 'stdin-end' })
  await until('the guest has ended', () => node.pool.size === 1 && node.pool.busy === 0)
  const { stdout, result } = await hearAll(engine)
  await served
  assert.equal(stdout, MIB)
  assert.deepEqual([result.outcome.kind, result.stdoutTruncated], ['exited', true])
})

test('FN-9 a guest speaks before its stdin comes, and answers each piece of it', async (t) => {
  const node = await nodeOf(t)
  const { engine, served } = await node.invoke(GREETS, { stdout: 'whole' })
  const next = async (): Promise<string> => {
    const message = (await engine.read()) as FromInvocation
    return message.t === 'stdout' ? Buffer.from(message.bytes).toString() : message.t
  }
  assert.equal(await next(), 'hi')
  for (const piece of ['one', 'two']) {
    await engine.write({ t: 'stdin', bytes: Buffer.from(piece) })
    assert.equal(await next(), piece)
  }
  await engine.write({ t: 'stdin-end' })
  assert.equal(await next(), 'result')
  await served
})

test('FN-3 stdin in many pieces, large and small, comes whole', async (t) => {
  const node = await nodeOf(t)
  for (const pieces of [['a'], ['a', 'bc', ''], Array<string>(20).fill('x'.repeat(50_000))]) {
    const { engine, served } = await node.invoke(GREETS, { stdout: 'whole' })
    const writing = (async () => {
      for (const piece of pieces) await engine.write({ t: 'stdin', bytes: Buffer.from(piece) })
      await engine.write({ t: 'stdin-end' })
    })()
    const { stdout, text } = await hearAll(engine)
    await Promise.all([writing, served])
    assert.equal(stdout, 2 + pieces.join('').length)
    assert.ok(`hi${pieces.join('')}`.startsWith(text))
  }
})

test('FN-4 a caller that leaves ends its guest at once, held back or spinning', async (t) => {
  const node = await nodeOf(t)
  for (const [wat, spec] of [
    [SPIN, {}],
    [flood(400), { stdout: 'whole' }],
  ] as const) {
    const { engine, served } = await node.invoke(wat, spec)
    await engine.write({ t: 'stdin-end' })
    await until('it runs', () => node.pool.busy === 1)
    const began = systemClock.monotonic()
    engine.destroy()
    await served
    const took = systemClock.monotonic() - began
    assert.ok(took < 1_000, `${took} ms`)
    await until('its runner is gone', () => node.pool.busy === 0)
  }
})

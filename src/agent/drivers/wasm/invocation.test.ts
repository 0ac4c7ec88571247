import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import { sha256Hex } from '#lib/bytes.ts'
import { systemClock } from '#lib/clock.ts'
import type { FramedStream } from '#protocol/framed-stream.ts'
import type { InvokeHeader } from '#protocol/messages.ts'
import { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'
import { serveInvocation } from '#agent/drivers/wasm/invocation.ts'
import type { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** An engine's end that sends `bytes` when it is asked for them, some turns of the loop later. */
function engineSide(bytes: Uint8Array): { framed: FramedStream; has: boolean[] } {
  const stream = new PassThrough()
  const has: boolean[] = []
  const queue: unknown[] = []
  const framed = {
    stream,
    async write(message: { t: string; have?: boolean }) {
      await turn()
      if (message.t !== 'artifact') return
      has.push(message.have === true)
      if (message.have === false) queue.push({ t: 'artifact', bytes })
      queue.push({ t: 'stdin-end' })
    },
    async read() {
      for (let i = 0; i < 20; i++) await turn()
      return queue.shift()
    },
    end: () => stream.end(),
    destroy: () => stream.destroy(),
  }
  return { framed: framed as unknown as FramedStream, has }
}

test('FN-8 invocations that arrive together ask for the artifact once', async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'clutch-invocation-'))
  t.after(() => rm(dataDir, { recursive: true, force: true }))
  const cache = await ArtifactCache.open(dataDir)
  const bytes = Buffer.alloc(400, 'a')
  const artifact = { sha256: sha256Hex(bytes), bytes: bytes.length }
  const pool = { with: async () => ({ t: 'result' }) } as unknown as RunnerPool
  const header: InvokeHeader = {
    t: 'invoke',
    id: 'inv_1',
    functionId: 'fn_1',
    artifact,
    memMb: 16,
    cpuMillis: 100,
    timeoutMs: 1000,
    args: [],
    env: [],
  }
  const engines = [1, 2, 3].map(() => engineSide(bytes))
  await Promise.all(
    engines.map(({ framed }) =>
      serveInvocation({ clock: systemClock, cache, pool }, header, framed),
    ),
  )
  assert.deepEqual(
    engines.map(({ has }) => has),
    [[false], [true], [true]],
  )
})

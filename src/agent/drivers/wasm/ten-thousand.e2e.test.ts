import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { descendants, isGone } from '#sim/bench/process-tree.ts'
import { prepare } from '#wasm/prepare.ts'
import type { Runner } from '#wasm/runner.ts'
import { residentMb } from '#agent/drivers/wasm/resident.ts'
import { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

const EXAMPLES = '../../../../examples/word-count'
const STDIN = Buffer.from('the quick brown fox jumps over the lazy dog\n'.repeat(20))
const COUNTED = /^\s*20\s+180\s+880\s*$/
const TOTAL = 10_000
/** After so many the heaps have their size. */
const SETTLED = 2_000
const ATONCE = 3
/** What a heap may wander, and finished instances wait for their collection. */
const CHILD_GREW_MB_MAX = 64
const OWN_GREW_MB_MAX = 64

async function artifactOf(file: string): Promise<Uint8Array> {
  const bytes = readFileSync(new URL(`${EXAMPLES}/${file}`, import.meta.url))
  const outcome = await prepare(bytes, { memMb: 64 })
  assert.ok(outcome.ok)
  return outcome.artifact
}

async function countWords(runner: Runner): Promise<number | undefined> {
  const said: Uint8Array[] = []
  const outcome = await runner.invoke({
    args: [],
    env: {},
    stdin: STDIN,
    timeoutMs: 30_000,
    onStdout: (bytes) => void said.push(bytes),
    onStderr: () => undefined,
  })
  assert.equal(outcome.kind, 'exited', JSON.stringify(outcome))
  assert.match(Buffer.concat(said).toString(), COUNTED)
  return runner.pid
}

test('FN-8 10,000 invocations leave memory flat, no child and no descriptor', async () => {
  const artifacts = new Map([
    ['component', await artifactOf('word-count.wasm')],
    ['preview1', await artifactOf('word-count.core.wasm')],
  ])
  const fds = (): number => readdirSync('/proc/self/fd').length
  const [fdsBefore, childrenBefore] = [fds(), descendants(process.pid).length]
  const pool = new RunnerPool({
    clock: systemClock,
    node: process.execPath,
    memMbMax: 4_000,
    // None is replaced meanwhile: what it gathers would show.
    servedMax: TOTAL + 1,
    artifact: async (sha256) => artifacts.get(sha256) ?? assert.fail(sha256),
  })
  const pids = new Set<number>()
  const sizes = new Map<number, number>()
  let done = 0
  const invokeUntil = async (total: number): Promise<void> => {
    while (done < total) {
      // A component costs three times a preview 1 module.
      const sha256 = done++ % 4 === 0 ? 'component' : 'preview1'
      const bound = { functionId: sha256, sha256, memMb: 64, cpuMillis: 4_000 }
      pids.add((await pool.with(bound, countWords)) ?? 0)
    }
  }
  const invokeAll = (total: number): Promise<unknown> =>
    Promise.all(Array.from({ length: ATONCE }, () => invokeUntil(total)))
  try {
    await invokeAll(SETTLED)
    globalThis.gc?.()
    const own = process.memoryUsage().rss
    for (const pid of pids) sizes.set(pid, residentMb(pid) ?? 0)
    await invokeAll(TOTAL)
    for (const [pid, before] of sizes) {
      const grew = (residentMb(pid) ?? Number.NaN) - before
      assert.ok(grew < CHILD_GREW_MB_MAX, `child ${pid} grew from ${before} by ${grew} MiB`)
    }
    const grew = (process.memoryUsage().rss - own) / 1024 ** 2
    assert.ok(grew < OWN_GREW_MB_MAX, `this process grew by ${grew} MiB`)
    assert.ok(pids.size <= 2 * ATONCE, `${pids.size} children served`)
  } finally {
    const children = descendants(process.pid)
    await pool.close()
    assert.ok(children.every(isGone))
  }
  assert.equal(descendants(process.pid).length, childrenBefore)
  assert.ok(fds() <= fdsBefore + 1, `${fds()} descriptors, ${fdsBefore} before`)
})

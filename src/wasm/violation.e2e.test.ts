// A runner whose child is not our program any more.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { systemClock as clock } from '#lib/clock.ts'
import { run } from '#wasm/fixtures/run-wat.ts'
import { Runner } from '#wasm/runner.ts'

/** Answers as a child does, with `result` for every invocation. */
const impostor = (result: unknown): string => `#!${process.execPath}
const { readSync, writeSync } = require('node:fs')
const read = (n) => { const b = Buffer.alloc(n); for (let at = 0, k; at < n; at += k) if (!(k = readSync(0, b, at, n - at, null))) process.exit(0); return b }
const send = (kind, text) => { const b = Buffer.alloc(5 + Buffer.byteLength(text)); b.writeUInt32LE(b.length - 5); b[4] = kind; b.write(text, 5); writeSync(1, b) }
send(1, '')
for (;;) {
  const head = read(5)
  read(head.readUInt32LE(0))
  if (head[4] === 2) send(2, '{}')
  if (head[4] === 3) send(6, ${JSON.stringify(JSON.stringify(result))})
}
`

const measured = {
  durationMs: 1,
  memPeakBytes: 0,
  fuelUsed: 0,
  last: false,
  stdoutTruncated: false,
  stderrTruncated: false,
}

test('FN-4 a child that answers in a wrong form is killed, and its invocation is a fault', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'clutch-impostor-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const cases = [
    [{ kind: 'exited', exitCode: 7, ...measured }, 'exited'],
    [{ kind: 'exited', exitCode: 7 }, 'fault'],
    [{ kind: 'exited', exitCode: -1, ...measured }, 'fault'],
    [{ kind: 'cancelled', message: 'by itself', ...measured }, 'fault'],
  ] as const
  for (const [index, [result, kind]] of cases.entries()) {
    const node = join(folder, `impostor-${index}.cjs`)
    await writeFile(node, impostor(result), { mode: 0o755 })
    const runner = await Runner.start({ artifact: new Uint8Array(8), memMb: 64, node, clock })
    const { outcome } = await run(runner)
    assert.equal(outcome.kind, kind)
    if (outcome.kind === 'fault') {
      assert.match(outcome.message, /a result whose \w+ is wrong/)
      assert.equal(runner.state, 'dead')
    }
    await runner.close()
  }
})

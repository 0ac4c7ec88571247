import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { systemClock } from '#lib/clock.ts'
import type { RunOutcome } from '#wasm/outcome.ts'
import { prepare } from '#wasm/prepare.ts'
import { type InvokeSpec, Runner } from '#wasm/runner.ts'

const open = new Set<Runner>()
after(async () => {
  for (const runner of open) await runner.close()
})

async function runnerOf(wat: string, memMb = 64): Promise<Runner> {
  const prepared = await prepare(await parse(wat), { memMb })
  assert.ok(prepared.ok, JSON.stringify(prepared))
  const { artifact } = prepared
  const runner = await Runner.start({ artifact, memMb, node: process.execPath, clock: systemClock })
  open.add(runner)
  return runner
}

type Ran = { outcome: RunOutcome; stdout: string; stderr: string }

async function run(runner: Runner, spec: Partial<InvokeSpec> = {}): Promise<Ran> {
  const chunks = { stdout: new Array<Uint8Array>(), stderr: new Array<Uint8Array>() }
  const outcome = await runner.invoke({
    args: [],
    env: {},
    stdin: new Uint8Array(0),
    timeoutMs: 10_000,
    onStdout: (chunk) => void chunks.stdout.push(chunk),
    onStderr: (chunk) => void chunks.stderr.push(chunk),
    ...spec,
  })
  return {
    outcome,
    stdout: Buffer.concat(chunks.stdout).toString(),
    stderr: Buffer.concat(chunks.stderr).toString(),
  }
}

const HELLO = `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\\08\\00\\00\\00\\06\\00\\00\\00hello\\0a")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))))`

test('FN-3 a preview 1 program writes to stdout and exits 0', async () => {
  const { outcome, stdout } = await run(await runnerOf(HELLO))
  assert.equal(stdout, 'hello\n')
  assert.equal(outcome.kind, 'exited')
  assert.equal(outcome.kind === 'exited' && outcome.exitCode, 0)
})

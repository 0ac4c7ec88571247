// FN-2 through the real parts: whatever bytes are deployed, the engine and the agent go on as they were.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { AppError } from '#lib/error.ts'
import { seededRandom, systemRandom } from '#lib/random.ts'
import { refusal, startPlatform } from '#test/platform.ts'
import { mutated, REFUSALS } from '#wasm/fixtures/mutate.ts'
import { component, preview1 } from '#wasm/fixtures/run-wat.ts'

const CASES = process.env['CLUTCH_SOAK'] === undefined ? 200 : 1_000
/** Accepted ones that are also run. */
const RUN_MAX = CASES / 10
/** As many as an engine prepares at a time. */
const WORKERS = 2
const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')

const platform = await startPlatform({ after }, { settings: { 'deploys-per-minute': '100000' } })
const { orgId } = platform
const { compute } = platform.api
const agent = await platform.startNode('node-h1')
await platform.deploy('steady', 'word-count/word-count.wasm', { cpuMillis: 100 })
const PIDS = [platform.engine.pid, agent.program.pid]

async function assertUntouched(): Promise<void> {
  assert.deepEqual([platform.engine.pid, agent.program.pid], PIDS)
  assert.ok(platform.engine.running && agent.program.running)
  const ran = await platform.invoke('steady', { stdin: 'a b c' })
  assert.deepEqual([ran.ok, ran.stdout.trim().split(/\s+/)], [true, ['0', '3', '5']])
}

test('000-51 a text file and a file of 7 bytes are refused at deploy, nothing is stored, invoke knows no such function', async () => {
  for (const [bytes, reason] of [
    [Buffer.from('(module (func (export "_start")))'), 'BAD_MAGIC'],
    [readFileSync(join(import.meta.dirname, '../README.md')), 'BAD_MAGIC'],
    [Buffer.of(0, 0x61, 0x73, 0x6d, 1, 0, 0), 'TOO_SHORT'],
    [Buffer.of(), 'TOO_SHORT'],
  ] as const) {
    const refused = await refusal(platform.deploy('no-wasm', bytes))
    assert.deepEqual([refused.code, refused.reason], ['INVALID', reason], refused.message)
    assert.equal((await refusal(platform.invoke('no-wasm'))).code, 'NOT_FOUND')
  }
  const { functions } = await compute.functions.list({ orgId })
  assert.deepEqual(
    functions.map((one) => one.name),
    ['steady'],
  )
  await assertUntouched()
})

/** How a deploy of these bytes ended; whatever was accepted is run and deleted. */
async function tryOne(bytes: Uint8Array, name: string, runIt: boolean): Promise<string> {
  try {
    await platform.deploy(name, bytes, { cpuMillis: 100 })
  } catch (error) {
    assert.ok(error instanceof AppError, String(error))
    const { code, details, message } = error
    assert.equal(code, 'INVALID', message)
    assert.match(String(details.reason), REFUSALS, message)
    assert.ok(message.length > 10 && message.length < 3_000, message)
    assert.equal((await refusal(platform.invoke(name))).code, 'NOT_FOUND')
    return String(details.reason)
  }
  if (runIt) {
    const ran = await platform.invoke(name, { timeoutMs: 500 })
    assert.match(ran.reason ?? 'none', /^(none|exit|trap|memory|timeout)$/, ran.error ?? '')
  }
  await compute.functions.delete({ orgId, name })
  return 'accepted'
}

test(`FN-2 ${CASES} mutated binaries deployed: a clear refusal, or a function that runs to an end of its own, seed ${seed}`, async (t) => {
  const random = seededRandom(seed)
  const probe = readFileSync(join(import.meta.dirname, '../examples/probe/probe.wasm'))
  const small = [
    await parse(component('i32.const 0', '', '', '(memory 1)')),
    await parse(preview1(['proc_exit', 'args_get'], '(call $proc_exit (i32.const 3))')),
  ]
  // The first three are sound. The large one takes longer to prepare: one in sixteen.
  const cases = Array.from({ length: CASES }, (_, i) => {
    const source = i % 16 === 0 ? probe : (small[i % 2] ?? probe)
    return i < 3 ? source : mutated(source, random)
  })
  const ends = new Map<string, number>()
  const queue = cases.entries()
  const worker = async (): Promise<void> => {
    for (const [i, bytes] of queue) {
      const runIt = (ends.get('accepted') ?? 0) < RUN_MAX
      const end = await tryOne(bytes, `mutated-${i}`, runIt).catch((cause: unknown) => {
        throw new Error(`seed ${seed}, case ${i}`, { cause })
      })
      ends.set(end, (ends.get(end) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: WORKERS }, worker))
  t.diagnostic(JSON.stringify(Object.fromEntries(ends)))
  assert.ok((ends.get('accepted') ?? 0) >= 3 && ends.size > 3)
  await assertUntouched()
  const { functions } = await compute.functions.list({ orgId })
  assert.deepEqual(
    functions.map((one) => one.name),
    ['steady'],
  )
  await platform.assertConsistent()
})

// FN-3: what a program gives, burns and how deep it calls is the same in both compilers, cold and warm.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { systemRandom } from '#lib/random.ts'
import { STACK_BYTES, STACK_KIB } from '#wasm/child/restricted-child.ts'

const MODULES = process.env['CLUTCH_SOAK'] === undefined ? 60 : 2000

const TIERS = {
  both: [],
  baseline: ['--liftoff-only'],
  optimizing: ['--no-liftoff'],
  'optimizing, nothing inlined': ['--no-liftoff', '--no-wasm-inlining'],
}

const PROBE = new URL('../fixtures/tiers-probe.ts', import.meta.url).pathname

type Report = Record<string, unknown[][]>

async function probe(flags: readonly string[], seed: string): Promise<Report> {
  const node = [process.execPath, `--stack-size=${STACK_KIB}`, '--no-warnings', ...flags, PROBE]
  const { stdout } = await promisify(execFile)(
    '/usr/bin/prlimit',
    [`--stack=${STACK_BYTES}`, '--', ...node, seed, String(MODULES)],
    { maxBuffer: 2 ** 28 },
  )
  return JSON.parse(stdout) as Report
}

test('FN-3 results, fuel and depth are the same in both compilers, cold and warm', async (t) => {
  const seed = process.env['CLUTCH_SEED'] ?? Buffer.from(systemRandom.bytes(6)).toString('hex')
  t.diagnostic(`seed ${seed}`)
  const reports: [string, Report][] = []
  for (const [tier, flags] of Object.entries(TIERS)) reports.push([tier, await probe(flags, seed)])
  const [, first] = reports[0]!
  for (const [tier, report] of reports)
    for (const [name, turns] of Object.entries(report)) {
      assert.deepEqual(turns, first[name], `seed ${seed}: ${name}, ${tier}`)
      if (name === 'kernels')
        for (const [kernel, cold, ...warm] of turns)
          for (const one of warm) assert.deepEqual(one, cold, String(kernel))
      else
        for (const warm of turns.slice(1))
          assert.deepEqual(warm, turns[0], `seed ${seed}: ${name} warm, ${tier}`)
    }
  const deep = [
    'narrow',
    'mutual',
    'indirect',
    'inlined',
    'wide',
    'high',
    'live',
    'vectors',
    'parameters',
    'caught',
    'results',
  ]
  for (const name of deep) {
    const [[outcome, depth, , passed] = []] = first[name] ?? []
    assert.deepEqual([outcome, passed], ['trap: unreachable', 'depth'], name)
    t.diagnostic(`${name}: ${String(depth)} deep`)
  }
})

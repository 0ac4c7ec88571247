import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { decodeArtifact } from '#wasm/artifact.ts'
import { leanGlue } from '#wasm/lean-glue.ts'
import { prepare } from '#wasm/prepare.ts'

const bind = (async: boolean): string => `
  let trampoline3 = _lowerImportBackwardsCompat.bind(
  null,
  {
    trampolineIdx: 3,
    componentIdx: 1,
    isAsync: false,
    isManualAsync: _trampoline3.manuallyAsync,
    paramLiftFns: [],
    funcTypeIsAsync: ${async},
    importFn: _trampoline3,
  },
  );
`

const TASKS = '\n  function createNewCurrentTask(args) {\n  }\n'

test('FN-8 calls of the host go through no task in the glue of a real component', async () => {
  const component = readFileSync(
    new URL('../../examples/word-count/word-count.wasm', import.meta.url),
  )
  const outcome = await prepare(component, { memMb: 64 })
  assert.ok(outcome.ok)
  const { glue } = decodeArtifact(outcome.artifact)
  for (const gone of [
    'manuallyAsync',
    '_lowerImportBackwardsCompat',
    '_jcoMaySuspend:',
    'promising(',
  ])
    assert.ok(!glue.includes(gone), gone)
  assert.ok(!glue.includes('_debugLog('))
  assert.equal(glue.match(/_hostImport\(\d+,/g)?.length, 18)
  assert.ok(glue.length < 90_000, `${glue.length} characters`)
})

test('FN-8 glue with an asynchronous function is left as it is', () => {
  const source = `${bind(true)}${TASKS}`
  assert.equal(leanGlue(source), source)
})

test('FN-8 glue without imports needs no edit', () => {
  assert.equal(leanGlue('export function instantiate() {}'), 'export function instantiate() {}')
})

test('FN-8 a form of the glue that is not known is refused at deploy', () => {
  assert.match(leanGlue(`${TASKS}${bind(false)}`), /_hostImport\(1, _trampoline3\)/)
  const other = bind(false).replace('trampolineIdx', 'trampolineIndex')
  assert.throws(() => leanGlue(`${TASKS}${other}`), /imports in a form that this version does not/)
  assert.throws(() => leanGlue(bind(false)), /tasks in a form that this version does not/)
})

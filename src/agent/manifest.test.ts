import assert from 'node:assert/strict'
import { test } from 'node:test'
import { manifestOf } from '#agent/manifest.ts'

const GIB = 1024 ** 3
const machine = { cores: 4, memory: 10 * GIB }
const all = { runtimes: ['wasm'], maxCpuMillis: undefined, maxMemMb: undefined }

test('ND-29 a node offers all of its CPU and nine tenths of its memory', () => {
  assert.deepEqual(manifestOf(machine, all, []), {
    cpuMillis: 4000,
    memMb: 9216,
    runtimes: ['wasm'],
    jailMissing: [],
  })
})

test('ND-29 a node can offer less than it has, never more', () => {
  const less = manifestOf(machine, { ...all, maxCpuMillis: 1500, maxMemMb: 512 }, [])
  assert.deepEqual([less.cpuMillis, less.memMb], [1500, 512])
  const more = manifestOf(machine, { ...all, maxCpuMillis: 99_000, maxMemMb: 99_000 }, [])
  assert.deepEqual([more.cpuMillis, more.memMb], [4000, 9216])
})

test('FN-4 ND-29 a node says what its jail lacks', () => {
  assert.deepEqual(manifestOf(machine, all, ['own-uid']).jailMissing, ['own-uid'])
})

test('ND-29 FN-4 a node offers no more CPU than its runners can use: 800 of a tenth of a core', () => {
  assert.equal(manifestOf({ cores: 128, memory: 512 * GIB }, all, []).cpuMillis, 80_000)
  assert.equal(manifestOf({ cores: 80, memory: 512 * GIB }, all, []).cpuMillis, 80_000)
})

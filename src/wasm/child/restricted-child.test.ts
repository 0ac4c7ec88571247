import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describeEnd, endedForMemory } from '#wasm/child/restricted-child.ts'

const end = (stderr: string, code: number | null = null, signal: string | null = 'SIGABRT') => ({
  code,
  signal,
  stderr,
})

test('FN-4 a child that ran out of memory is told from one that broke', () => {
  assert.ok(
    endedForMemory(
      end('FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory'),
    ),
  )
  assert.ok(endedForMemory(end('# Fatal process out of memory: Zone')))
  assert.ok(!endedForMemory(end('Error: the parent closed the pipe', 1, null)))
  assert.ok(!endedForMemory(end('')))
})

test('FN-4 the end of a child is told in one line', () => {
  assert.equal(describeEnd(end('', null, 'SIGKILL')), 'signal SIGKILL')
  assert.equal(
    describeEnd(end('\nsetpriv: failed to execute /x\nmore', 127, null)),
    'code 127: setpriv: failed to execute /x',
  )
  assert.equal(
    describeEnd(end('spawn /usr/bin/prlimit ENOENT', null, null)),
    'code null: spawn /usr/bin/prlimit ENOENT',
  )
})

// The command of the benches, without what takes minutes.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { percentile, round } from '#sim/bench/row.ts'

test('OP-3 script/bench names the benches that there are when asked for another', () => {
  const script = join(import.meta.dirname, '../script/bench')
  const ended = spawnSync(script, ['speed', '--json'], { cwd: tmpdir(), encoding: 'utf8' })
  assert.equal(ended.status, 1, ended.stderr)
  assert.equal(ended.stdout, '')
  assert.match(ended.stderr, /no bench 'speed': there are sessions, functions, metering\n$/)
})

test('OP-3 figures of a bench: percentiles of unsorted samples, three significant digits', () => {
  const samples = [9, 1, 5, 3, 7]
  assert.deepEqual(
    [0, 0.5, 0.99].map((share) => percentile(samples, share)),
    [1, 5, 9],
  )
  assert.ok(Number.isNaN(percentile([], 0.5)))
  assert.deepEqual([0.012346, 12.346, 123_456].map(round), [0.0123, 12.3, 123_000])
})

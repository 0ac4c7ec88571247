import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'

const ROOT = join(import.meta.dirname, '../..')
/** They try this very machinery, not SQL. */
const OTHERS = new Set(['test-database.pg.test.ts'])

test('ND-27 the whole store works on Postgres 15', () => {
  const files = readdirSync(import.meta.dirname)
    .filter((name) => name.endsWith('.pg.test.ts') && !OTHERS.has(name))
    .map((name) => join(import.meta.dirname, name))
  // The runner's own variables would make the inner run answer in its private format.
  const { NODE_TEST_CONTEXT: _ours, NODE_OPTIONS: _too, ...env } = process.env
  const flags = ['--test', '--test-reporter=tap', '--test-timeout=60000', ...files]
  const out = execFileSync(join(ROOT, 'script/with-postgres-15'), [process.execPath, ...flags], {
    cwd: ROOT,
    env,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 ** 2,
  })
  assert.match(out, /# fail 0\n/)
  assert.doesNotMatch(out, /# pass 0\n/)
})

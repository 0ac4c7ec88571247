// The store's suite on Debian's Postgres 15: the oldest server that DATABASE_URL may name (ND-27).
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'

const root = join(import.meta.dirname, '..')

test('ND-27 the store runs on Postgres 15', { timeout: 170_000 }, async () => {
  const env = { ...process.env }
  // Inside a test run node:test would report to the outer run instead of printing its own closing lines.
  delete env['NODE_TEST_CONTEXT']
  const suite = [process.execPath, '--test', '--test-concurrency=2', 'src/store/**/*.pg.test.ts']
  const child = spawn('script/with-postgres-15', suite, {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const code = await new Promise((done) => child.once('close', done))
  assert.equal(code, 0, said.slice(-4_000))
  assert.match(said, /pass [1-9]\d+/)
  assert.match(said, /fail 0/)
  assert.match(said, /skipped 0/)
})

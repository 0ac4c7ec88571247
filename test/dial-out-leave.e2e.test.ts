// An agent that is told to stop, and one that is started wrongly.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { startPlatform } from '#test/platform.ts'

const NODED = join(import.meta.dirname, '../bin/clutch-noded')
const platform = await startPlatform({ after })
await platform.deploy('probe', 'probe/probe.wasm')

test('ND-3 an agent that is told to stop lets what runs end, gets nothing new, and exits 0', async () => {
  const agent = await platform.startNode('node-a1')
  assert.equal((await platform.probe('probe', ['out', 'warm'])).ok, true)
  const running = platform.probe('probe', ['sleep', '2000', 'out', 'to the end'])
  await platform.untilRunning(1)
  const began = systemClock.monotonic()
  agent.program.signal('SIGTERM')
  await platform.untilNode('node-a1', (node) => node.connectivity === 'disconnected', 1_500)
  const answer = await running
  assert.equal(answer.ok, true, JSON.stringify(answer))
  assert.equal(answer.stdout, 'to the end\n')
  const exit = await agent.program.exited
  assert.deepEqual(exit, { code: 0, signal: null })
  assert.ok(systemClock.monotonic() - began < 5_000)
  assert.match(agent.log, /SIGTERM: leaving/)
})

test('ND-3 an idle agent leaves at once, comes back by its journal, without its token', async () => {
  const agent = platform.agents[0]!
  agent.setToken('')
  agent.start()
  const back = await platform.untilNode('node-a1', (node) => node.schedulable)
  assert.equal(back.session?.epoch, 2)
  const began = systemClock.monotonic()
  const exit = await agent.program.stop(5_000)
  assert.equal(exit.code, 0)
  assert.ok(systemClock.monotonic() - began < 3_000)
})

const noded = (...args: string[]): { code: number | null; said: string } => {
  const ended = spawnSync(NODED, args, {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], HOME: tmpdir() },
    timeout: 20_000,
  })
  return { code: ended.status, said: ended.stderr }
}

test('000-22 what is missing is named, with what to do, and the exit says that trying again is no use', () => {
  const { code, said } = noded()
  assert.equal(code, 78)
  for (const flag of ['--server', '--node', '--runtimes']) assert.match(said, new RegExp(flag))
  assert.match(said, /→ clutch-noded --help/)
})

test('000-22 ND-2 without a token, and with a mistyped one, the agent ends before it dials', (t) => {
  const dataDir = mkdtempSync(join(tmpdir(), 'clutch-node-'))
  t.after(() => rmSync(dataDir, { recursive: true, force: true }))
  // Nothing listens there: a dial would be tried for ever.
  const flags = [
    '--server',
    '127.0.0.1:9',
    '--node',
    'n',
    '--runtimes',
    'wasm',
    '--data-dir',
    dataDir,
  ]
  const without = noded(...flags)
  assert.equal(without.code, 78)
  assert.match(without.said, /TOKEN_MISSING.*not enrolled yet/s)
  const typo = noded(...flags, '--token', `clt_n_${'A'.repeat(68)}`)
  assert.equal(typo.code, 78)
  assert.match(typo.said, /TOKEN_MALFORMED/)
  assert.doesNotMatch(typo.said, /AAAA/)
})

test('000-25 community hardware without the jailer refuses to offer machines', () => {
  const { code, said } = noded(
    '--server',
    'a:1',
    '--node',
    'n',
    '--community',
    '--runtimes',
    'wasm,microvm',
  )
  assert.equal(code, 78)
  assert.match(said, /--community refuses to offer microvm/)
})

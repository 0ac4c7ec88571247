import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { silentLogger } from '#lib/log.ts'
import type { FromNode } from '#protocol/messages.ts'
import { Commands } from '#agent/commands.ts'
import type { Checked } from '#agent/driver.ts'
import { Journal } from '#agent/journal.ts'

async function commands(t: TestContext, check: (signal: AbortSignal) => Promise<Checked>) {
  const dataDir = await mkdtemp(join(tmpdir(), 'clutch-agent-'))
  const journal = Journal.open(dataDir)
  t.after(async () => {
    journal.close()
    await rm(dataDir, { recursive: true, force: true })
  })
  const clock = fakeClock()
  const said: FromNode[] = []
  let ran = 0
  const make = (): Commands =>
    new Commands({
      clock,
      log: silentLogger,
      journal,
      send: (message) => void said.push(message),
      check: (_, signal) => {
        ran++
        return check(signal)
      },
    })
  return { clock, said, make, journal, ran: () => ran }
}

const command = { t: 'command', id: 'cmd_1', kind: 'diag.wasm', deadlineMs: 1000 } as const
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

test('ND-25 a command that comes again is answered again and not run again, after a restart too', async (t) => {
  const { said, make, ran } = await commands(t, async () => ({ ok: true, output: 'fine' }))
  const one = make()
  one.take(command)
  one.take(command)
  await settle()
  one.take(command)
  make().take(command)
  assert.equal(ran(), 1)
  const answer = { t: 'command-result', id: 'cmd_1', ok: true, output: 'fine' }
  assert.deepEqual(said, [answer, answer, answer])
})

test('ND-25 a command that a crash interrupted is run again', async (t) => {
  const { said, make, ran } = await commands(t, async () => ({ ok: true, output: 'fine' }))
  const hung = make()
  hung.take(command)
  make().take(command)
  await settle()
  assert.ok(ran() >= 2)
  assert.equal(said.at(-1)?.t, 'command-result')
})

test('ND-25 a check that is not done by its deadline is aborted, and one that throws is a failure', async (t) => {
  const never = (signal: AbortSignal): Promise<Checked> =>
    new Promise((_, reject) =>
      signal.addEventListener('abort', () => reject(signal.reason), { once: true }),
    )
  const { said, make, clock } = await commands(t, never)
  make().take(command)
  await clock.advance(1000)
  await settle()
  assert.deepEqual(said, [
    { t: 'command-result', id: 'cmd_1', ok: false, output: 'not done within 1000 ms' },
  ])
})

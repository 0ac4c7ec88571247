// What is left of an agent that was killed with SIGKILL: nothing.
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { isGone, openFiles, type Proc } from '#sim/bench/process-tree.ts'
import { until } from '#lib/until.ts'
import { describe, startPlatform, type Agent } from '#test/platform.ts'

const platform = await startPlatform({ after })
const agent = await platform.startNode('node-a1')
await platform.deploy('probe', 'probe/probe.wasm', { cpuMillis: 100, timeoutMs: 60_000 })
await platform.deploy('words', 'word-count/word-count.wasm', { cpuMillis: 200 })

const gone = (processes: readonly Proc[], withinMs: number): Promise<unknown> =>
  until(
    () => `they are gone:\n${describe(processes.filter((one) => !isGone(one)))}`,
    () => processes.every(isGone) || undefined,
    withinMs,
  )

/** The clock ticks that each child has used until now. */
const busyChildren = (of: Agent): Proc[] =>
  of.children().filter((one) => one.state === 'R' && one.command.includes('--permission'))

async function spinners(count: number): Promise<{ ends: Promise<unknown>[]; children: Proc[] }> {
  const ends = Array.from({ length: count }, () => platform.probe('probe', ['spin', 'forever']))
  for (const end of ends) end.catch(() => undefined)
  await platform.untilRunning(count)
  // Runnable counts, so it does not matter how many cores there are.
  await until('every guest spins', () => busyChildren(agent).length >= count)
  return { ends, children: agent.children() }
}

test('ND-19 guests that spin die with their agent within 2 s, and their callers hear that the node was lost', async () => {
  const { ends, children } = await spinners(8)
  assert.ok(children.length >= 8, describe(children))
  const before = await platform.node('node-a1')
  await agent.program.kill()
  await gone(children, 2_000)
  agent.start()
  await platform.untilNode(
    'node-a1',
    (node) => node.schedulable && (node.session?.epoch ?? 0) > (before.session?.epoch ?? 0),
  )
  const answers = await Promise.all(ends)
  for (const answer of answers) {
    const { ok, reason, exitCode, error } = answer as Awaited<ReturnType<typeof platform.probe>>
    assert.deepEqual([ok, reason, exitCode], [false, 'node-lost', null])
    assert.ok(error)
  }
})

test('OP-6 an agent that is stopped lets what runs end, and its answer arrives', async () => {
  const before = await platform.node('node-a1')
  const running = [600, 900, 1_200].map((ms) =>
    platform.probe('probe', [
      'sleep',
      `${ms}`,
      'stdout',
      '300000',
      'err',
      'to the end',
      'exit',
      '7',
    ]),
  )
  await platform.untilRunning(3)
  assert.equal((await agent.program.stop()).code, 0)
  for (const ran of await Promise.all(running)) {
    assert.deepEqual([ran.exitCode, ran.reason], [7, 'exit'], JSON.stringify(ran).slice(0, 300))
    assert.deepEqual([ran.stdout.length, ran.stderr], [300_000, 'to the end\n'])
  }
  agent.start()
  await platform.untilNode(
    'node-a1',
    (node) => node.schedulable && (node.session?.epoch ?? 0) > (before.session?.epoch ?? 0),
  )
})

test('FN-4 guests that spin end when their engine is killed: nobody waits for them', async () => {
  const { ends, children } = await spinners(3)
  const spinning = children.filter((one) => one.command.includes('--permission'))
  const idle = new Set(agent.children().map((one) => one.pid))
  assert.ok(spinning.every((one) => idle.has(one.pid)))
  await platform.killEngine()
  await Promise.allSettled(ends)
  await until('no guest spins', () => (busyChildren(agent).length === 0 ? true : undefined), 12_000)
  await platform.startEngine()
  await platform.untilNode('node-a1', (node) => node.schedulable, 5_000)
  assert.equal((await platform.invoke('words', { stdin: 'a b c' })).ok, true)
})

test('ND-19 twenty kill -9 of the agent leave no process, no file and no socket behind', async (t) => {
  const files = (): string[] => readdirSync(agent.dataDir, { recursive: true, encoding: 'utf8' })
  const rounds = 20
  let first: { files: string[]; descriptors: number } | undefined
  const recovered: number[] = []
  for (let round = 0; round < rounds; round++) {
    const before = await platform.node('node-a1')
    const ran = await platform.invoke('words', { stdin: `round ${round}\n` })
    assert.equal(ran.ok, true, JSON.stringify(ran))
    const children = agent.children()
    assert.ok(children.length > 0)
    await agent.program.kill()
    const began = systemClock.monotonic()
    await gone(children, 2_000)
    agent.start()
    await platform.untilNode(
      'node-a1',
      (node) => node.schedulable && (node.session?.epoch ?? 0) > (before.session?.epoch ?? 0),
    )
    recovered.push(Math.round(systemClock.monotonic() - began))
    first ??= { files: files(), descriptors: openFiles(platform.engine.pid).length }
  }
  assert.equal((await platform.invoke('words', { stdin: 'x' })).ok, true)
  assert.deepEqual(files().toSorted(), first?.files.toSorted())
  // The engine's pool and its keep-alive connections breathe; twenty of anything would show.
  const descriptors = openFiles(platform.engine.pid).length
  assert.ok(descriptors < (first?.descriptors ?? 0) + 15, `${first?.descriptors} → ${descriptors}`)
  await platform.assertConsistent()
  t.diagnostic(`killed, started and schedulable again in ${recovered.join(', ')} ms`)
})

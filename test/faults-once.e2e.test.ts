// kill -9 of the engine while an invocation with an Idempotency-Key runs: it ran once, and is not run again (D51).
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { startPlatform } from '#test/platform.ts'

const platform = await startPlatform({ after })
await platform.startNode('node-o1')
await platform.deploy('probe', 'probe/probe.wasm', { timeoutMs: 60_000 })
await platform.deploy('words', 'word-count/word-count.wasm')

async function invoke(
  name: string,
  idempotencyKey: string,
  body: object,
): Promise<{ status: number; data?: { reason?: string }; stdout?: string }> {
  const response = await fetch(`${platform.url}/v1/functions/${name}/invoke`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${platform.key}`,
      'content-type': 'application/json',
      'idempotency-key': idempotencyKey,
    },
    body: JSON.stringify({ orgId: platform.orgId, ...body }),
  })
  const answer = (await response.json()) as { data?: { reason?: string }; stdout?: string }
  return { status: response.status, ...answer }
}

test('D51 OP-5 an invocation with a key whose engine is killed in the middle is never run again; what had ended answers the same', async () => {
  const words = { stdin: 'one two three' }
  const counted = await invoke('words', 'ended', words)
  assert.equal(counted.status, 200)
  const spinning = invoke('probe', 'spins', { args: ['spin', 'forever'] })
  const lost = assert.rejects(spinning)
  await platform.untilRunning(1)
  await platform.killEngine()
  await lost
  await platform.startEngine()
  await platform.untilNode('node-o1', (node) => node.schedulable)
  for (let i = 0; i < 3; i++) {
    const again = await invoke('probe', 'spins', { args: ['spin', 'forever'] })
    assert.deepEqual([again.status, again.data?.reason], [409, 'IDEMPOTENCY_OUTCOME_UNKNOWN'])
  }
  assert.equal(await platform.metric('clutch_invocations_running'), 0)
  assert.deepEqual(await invoke('words', 'ended', words), counted)
  const fresh = await invoke('words', 'fresh', words)
  assert.equal(fresh.stdout, counted.stdout)
  await platform.assertConsistent()
})

// ND-17: an engine that stood still, for longer than any silence may last, marks nobody.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { UNREACHABLE_AFTER_MS } from '#core/node/limits.ts'
import { startPlatform } from '#test/platform.ts'

const platform = await startPlatform({ after })

test('ND-17 a stopped engine calls no node unreachable when it goes on, and the node is back at once', async () => {
  await platform.startNode('node-a1')
  await platform.startNode('node-b2', { flags: ['--transport', 'tls'] })
  await platform.deploy('probe', 'probe/probe.wasm')
  platform.engine.signal('SIGSTOP')
  await systemClock.sleep(UNREACHABLE_AFTER_MS + 5_000)
  platform.engine.signal('SIGCONT')
  for (const nodeId of ['node-a1', 'node-b2'])
    await platform.untilNode(
      nodeId,
      (node) => node.schedulable && node.session?.epoch !== 1,
      10_000,
    )
  const { orgId } = platform
  const { events } = await platform.api.compute.events.list({ orgId, limit: 500 })
  assert.deepEqual(
    events.filter((event) => event.kind === 'node.unreachable'),
    [],
  )
  assert.equal((await platform.probe('probe', ['out', 'here'])).stdout, 'here\n')
})

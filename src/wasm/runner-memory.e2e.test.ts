// What the kernel counts of a runner, in the real jail.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { systemClock as clock } from '#lib/clock.ts'
import { RUNNER_MEM_MB } from '#core/function/limits.ts'
import { withJail } from '#wasm/fixtures/hostile.ts'
import { prepared, preview1, run } from '#wasm/fixtures/run-wat.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import { KERNEL_SLACK_MB, Runner } from '#wasm/runner.ts'

const node = process.execPath
const PAGES_PER_MIB = 16

/** Grows by so many MiB and touches each byte. */
const touches = (mib: number): string =>
  preview1(
    [],
    `(drop (memory.grow (i32.const ${mib * PAGES_PER_MIB})))
     (memory.fill (i32.const 65536) (i32.const 1) (i32.const ${mib * 1024 * 1024}))`,
  )

/** A jail whose children's memory is `memMb` less than asked for. */
const tighter = (jail: Jail, memMb: number): Pick<Jail, 'spawn'> => ({
  spawn(spec) {
    const less = ({ memMb: asked = 0, ...share }: typeof spec.share & {}) => ({
      ...share,
      ...(asked === 0 ? {} : { memMb: asked - memMb }),
    })
    const jailed = jail.spawn({ ...spec, share: less(spec.share ?? {}) })
    return { ...jailed, limit: (share) => jailed.limit(less(share)) }
  },
})

test('FN-4 a guest that uses all that its function may have lives within the limit of the kernel', async () => {
  await withJail({}, async (jail) => {
    const artifact = await prepared(touches(62))
    const means = { artifact, memMb: 64, node, clock }
    const narrow = tighter(jail, KERNEL_SLACK_MB) as Jail
    for (const within of [jail, narrow]) {
      const runner = await Runner.start({ ...means, jail: within })
      for (let i = 0; i < 30; i++) {
        const { outcome } = await run(runner)
        assert.equal(outcome.kind, 'exited', `${i}: ${JSON.stringify(outcome)}`)
      }
      await runner.close()
    }
  })
})

test('FN-3 FN-4 a runner that the kernel ends for its memory ended for memory', async () => {
  await withJail({}, async (jail) => {
    const artifact = await prepared(touches(250), 256)
    const narrow = tighter(jail, RUNNER_MEM_MB + KERNEL_SLACK_MB + 100) as Jail
    const runner = await Runner.start({ artifact, memMb: 256, node, clock, jail: narrow })
    const { outcome } = await run(runner)
    assert.deepEqual(
      [outcome.kind, outcome.kind !== 'exited' && outcome.message],
      ['memory', 'the guest exhausted its process'],
    )
    assert.equal(runner.state, 'dead')
    await runner.close()
  })
})

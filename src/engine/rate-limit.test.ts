import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RateLimit } from '#engine/rate-limit.ts'
import { seededRandom } from '#lib/random.ts'
import { fakeClock } from '#lib/fake-clock.ts'

const limits = { enroll: 60, deploy: 1, invoke: 60_000, 'public-invoke': 10, 'sign-in': 10 }

test('AC-3 a minute’s worth passes at once; then one at a time as it refills', async () => {
  const clock = fakeClock()
  const limit = new RateLimit(limits, clock)
  for (let n = 0; n < 60; n++) assert.equal(limit.take('enroll', 'org_a'), undefined)
  assert.equal(limit.take('enroll', 'org_a'), 1_000)
  assert.equal(limit.take('enroll', 'org_b'), undefined, 'another org has its own')
  assert.equal(limit.take('deploy', 'org_a'), undefined, 'another limit has its own')
  await clock.advance(999)
  assert.equal(limit.take('enroll', 'org_a'), 1)
  await clock.advance(1)
  assert.equal(limit.take('enroll', 'org_a'), undefined)
  assert.equal(limit.take('enroll', 'org_a'), 1_000)
  await clock.advance(3_600_000)
  for (let n = 0; n < 60; n++) assert.equal(limit.take('enroll', 'org_a'), undefined)
  assert.ok(limit.take('enroll', 'org_a'))
})

test('AC-3 a flood of addresses does not make anybody’s bucket full again', async () => {
  const clock = fakeClock()
  const limit = new RateLimit(limits, clock)
  assert.equal(limit.take('deploy', 'org_a'), undefined)
  for (let n = 0; n < 20_000; n++) limit.take('sign-in', `address ${n}`)
  assert.ok(limit.take('deploy', 'org_a'))
})

test('AC-3 over any minute no more pass than twice the limit, whatever the rhythm', () => {
  const seed = String(Date.now())
  const random = seededRandom(seed)
  for (const most of [1, 7, 60]) {
    let now = 0
    const clock = { ...fakeClock(), monotonic: () => now }
    const limit = new RateLimit({ ...limits, enroll: most }, clock)
    const passed: number[] = []
    for (let n = 0; n < 5_000; n++) {
      now += random.float() < 0.1 ? random.below(30_000) : random.below(50)
      if (limit.take('enroll', 'org_a') === undefined) passed.push(now)
    }
    for (const [at, from] of passed.entries()) {
      const within = passed.slice(at).filter((one) => one - from < 60_000).length
      assert.ok(within <= 2 * most, `seed ${seed}: ${within} in a minute from ${from}`)
    }
    const spanMinutes = now / 60_000
    assert.ok(passed.length <= most * (spanMinutes + 1), `seed ${seed}`)
  }
})

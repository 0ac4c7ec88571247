import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { HealthyTime } from '#engine/gateway/healthy-time.ts'

test('ND-17 an engine that was stopped for ten minutes has aged by two ticks', async () => {
  const clock = fakeClock()
  const healthy = new HealthyTime(clock, 1_000)
  for (let tick = 0; tick < 5; tick++) {
    await clock.advance(1_000)
    healthy.tick()
  }
  assert.equal(healthy.now(), 5_000)
  await clock.advance(600_000)
  healthy.tick()
  assert.equal(healthy.now(), 7_000)
})

test('ND-17 it never runs ahead of the clock', async () => {
  const clock = fakeClock()
  const healthy = new HealthyTime(clock, 1_000)
  await clock.advance(10)
  for (let tick = 0; tick < 5; tick++) healthy.tick()
  assert.equal(healthy.now(), 10)
})

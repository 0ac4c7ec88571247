import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { seededRandom, type Random } from '#lib/random.ts'
import { NO_FAILURES, redial, type Failures } from '#session/outcome.ts'

const retryable = { kind: 'retryable', reason: 'UNREACHABLE', message: 'no answer' } as const
const served = (upMs: number, spreadMs = 0) =>
  ({
    kind: 'served',
    upMs,
    spreadMs,
    transport: 'quic',
    reason: 'CLOSED',
    message: 'closed',
  }) as const
/** Always the longest wait. */
const most: Random = { ...seededRandom(1), float: () => 1 }

test('ND-4 failed dials back off to 2 s in the first minute, then to 60 s', () => {
  let failures: Failures = NO_FAILURES
  let now = 5_000
  const waits: { since: number; waitMs: number }[] = []
  while (now < 20 * 60_000) {
    const next = redial(retryable, failures, { now, random: most })
    waits.push({ since: now - 5_000, waitMs: next.waitMs })
    failures = next.failures
    now += Math.max(next.waitMs, 1) + 10
  }
  const early = waits.filter(({ since }) => since < 60_000)
  const late = waits.filter(({ since }) => since >= 60_000)
  assert.equal(Math.max(...early.map(({ waitMs }) => waitMs)), 2_000)
  assert.equal(Math.max(...late.map(({ waitMs }) => waitMs)), 60_000)
  assert.ok((early[0]?.waitMs ?? 0) <= 100)
})

test('ND-4 the jitter is full: any wait from nothing to the cap', () => {
  const seed = 7
  const random = seededRandom(seed)
  fc.assert(
    fc.property(fc.nat(40), fc.nat(1_000_000), (count, age) => {
      const { waitMs } = redial(retryable, { count, since: 0 }, { now: age, random })
      assert.ok(waitMs >= 0 && waitMs <= (age < 60_000 ? 2_000 : 60_000))
    }),
    { seed },
  )
})

test('D18 a session that worked is redialled at once; one that never lasted backs off as a failure', () => {
  const worked = redial(served(60_000), { count: 9, since: 0 }, { now: 1e6, random: most })
  assert.deepEqual(worked, { waitMs: 0, failures: NO_FAILURES })
  const flapped = redial(served(100), { count: 3, since: 0 }, { now: 1_000, random: most })
  assert.equal(flapped.failures.count, 4)
  assert.ok(flapped.waitMs > 0)
})

test('ND-20 an engine that stops on purpose spreads its nodes over the time it names', () => {
  const { waitMs } = redial(served(60_000, 3_000), NO_FAILURES, { now: 0, random: most })
  assert.equal(waitMs, 3_000)
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  type Claim,
  type Holder,
  type Holding,
  isBefore,
  isTurnOf,
  TURN_OF_ORG_MS,
  TURN_OF_VERSION_MS,
} from '#core/placement/turns.ts'

const claim = (over: Partial<Claim> = {}): Claim => ({
  orgId: 'a',
  versionId: 'a1',
  hungryMs: 10_000,
  unit: 0.1,
  ...over,
})
const holder = (over: Partial<Holder> = {}): Holder => ({
  orgId: 'b',
  versionId: 'b1',
  heldMs: 10_000,
  ...over,
})
const held = (...shares: [orgId: string, versionId: string, share: number][]): Holding[] =>
  shares.map(([orgId, versionId, share]) => ({ orgId, versionId, share }))

test('PL-4 who holds nothing has a turn, once it got no more for one and the holder had one', () => {
  const all = held(['b', 'b1', 0.1])
  assert.ok(isTurnOf(claim(), holder(), all))
  assert.ok(!isTurnOf(claim({ hungryMs: TURN_OF_ORG_MS - 1 }), holder(), all))
  assert.ok(!isTurnOf(claim(), holder({ heldMs: TURN_OF_ORG_MS - 1 }), all))
  const mate = { orgId: 'a', versionId: 'a2' }
  const own = held(['a', 'a2', 0.1])
  assert.ok(isTurnOf(claim(), holder(mate), own))
  assert.ok(!isTurnOf(claim({ hungryMs: TURN_OF_VERSION_MS - 1 }), holder(mate), own))
  assert.ok(!isTurnOf(claim(), holder({ orgId: 'a', versionId: 'a1' }), all), 'its own room')
})

test('PL-4 room moves only towards equal shares: an org’s, whatever the number of its versions', () => {
  const many = held(['b', 'b1', 0.1], ['b', 'b2', 0.3], ['b', 'b3', 0.3], ['a', 'a1', 0.2])
  assert.ok(isTurnOf(claim(), holder(), many), '0.2 against 0.7')
  assert.ok(!isTurnOf(claim({ unit: 0.3 }), holder(), many), 'it would only turn about')
  const even = held(['b', 'b1', 0.4], ['a', 'a1', 0.3])
  assert.ok(!isTurnOf(claim(), holder(), even))
  assert.ok(!isTurnOf(claim(), holder(), held(['b', 'b1', 0.2], ['a', 'a2', 0.4])))
})

test('PL-4 of two that want free room the poorer is first, and of equals the longer hungry', () => {
  const other = claim({ orgId: 'b', versionId: 'b1', hungryMs: 9_000 })
  assert.ok(isBefore(claim(), other, []))
  assert.ok(!isBefore(other, claim(), []))
  assert.ok(isBefore(other, claim(), held(['a', 'a1', 0.1])))
  assert.ok(!isBefore(claim(), other, held(['a', 'a1', 0.1])))
  assert.ok(!isBefore(claim({ hungryMs: TURN_OF_ORG_MS - 1 }), other, held(['b', 'b1', 0.1])))
})

test('PL-4 of any two claims at most one is before the other', () => {
  const party = fc.record({
    orgId: fc.constantFrom('a', 'b', 'c'),
    versionId: fc.constantFrom('1', '2'),
  })
  const claims = fc
    .tuple(party, fc.integer({ min: 0, max: 2_000 }))
    .map(([{ orgId, versionId }, hungryMs]) =>
      claim({ orgId, versionId: orgId + versionId, hungryMs }),
    )
  const holdings = fc.array(
    fc.tuple(party, fc.integer({ min: 0, max: 5 })).map(([{ orgId, versionId }, tenths]) => ({
      orgId,
      versionId: orgId + versionId,
      share: tenths / 10,
    })),
    { maxLength: 6 },
  )
  fc.assert(
    fc.property(claims, claims, holdings, (one, two, all) => {
      assert.ok(!(isBefore(one, two, all) && isBefore(two, one, all)))
    }),
  )
})

const COLD_MS = 80

/**
 * A node of `units` for orgs that each have more calls than it can take, by the rules alone: a unit that ends a call
 * goes to whoever's turn it is, and costs COLD_MS then. Answers the calls served of each org, and of the one that
 * came at `lateAt` how many of others were served before its first.
 */
function simulate(spec: { units: number; orgs: number; callMs: number; lateAt: number }) {
  const { units, orgs, callMs, lateAt } = spec
  const names = Array.from({ length: orgs }, (_, i) => `org${i}`)
  const served = new Map(names.map((name) => [name, 0]))
  const gainedAt = new Map(names.map((name) => [name, 0]))
  const slots = Array.from({ length: units }, () => ({ orgId: 'org0', since: 0, endsAt: callMs }))
  const unit = 1 / units
  let beforeLate = 0
  const late = names.at(-1)!
  for (let now = 0; now < 60_000; now = Math.min(...slots.map(({ endsAt }) => endsAt))) {
    for (const slot of slots.filter(({ endsAt }) => endsAt <= now)) {
      served.set(slot.orgId, served.get(slot.orgId)! + 1)
      if (now >= lateAt && served.get(late) === 0) beforeLate++
      const all = slots.map(({ orgId }) => ({ orgId, versionId: orgId, share: unit }))
      const waiting = names.filter(
        (name) => name !== slot.orgId && (name !== late || now >= lateAt),
      )
      const due = waiting
        .map((orgId) => {
          const since = Math.max(gainedAt.get(orgId)!, orgId === late ? lateAt : 0)
          return { orgId, versionId: orgId, hungryMs: now - since, unit }
        })
        .filter((one) =>
          isTurnOf(one, { ...slot, versionId: slot.orgId, heldMs: now - slot.since }, all),
        )
      const next = due.find((one) => due.every((other) => !isBefore(other, one, all)))
      if (next) {
        slot.orgId = next.orgId
        slot.since = now
        gainedAt.set(next.orgId, now)
        slot.endsAt = now + COLD_MS + callMs
      } else slot.endsAt = now + callMs
    }
  }
  return { served, beforeLate }
}

test('PL-4 one call beside a flood is served within a turn, its start and a call or two of each unit', () => {
  for (const units of [1, 4, 16])
    for (const callMs of [1, 10, 100, 1_000]) {
      const { beforeLate } = simulate({ units, orgs: 2, callMs, lateAt: 10_000 })
      const bound = units * (Math.ceil((TURN_OF_ORG_MS + COLD_MS) / callMs) + 3)
      assert.ok(beforeLate <= bound, `${beforeLate} of ${bound}: ${units} units of ${callMs} ms`)
    }
})

test('PL-4 orgs that all flood get like shares, whether there are fewer of them than units or more', () => {
  for (const orgs of [2, 3, 8])
    for (const units of [1, 4, 16]) {
      const { served } = simulate({ units, orgs, callMs: 10, lateAt: 0 })
      const counts = [...served.values()]
      const worst = Math.min(...counts) / Math.max(...counts)
      assert.ok(worst > 0.4, `${orgs} orgs on ${units} units: ${counts.join(' ')}`)
    }
})

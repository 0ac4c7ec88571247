import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Known, Ticks } from '#engine/functions/known.ts'

test('PL-4 what was read before its change is not sure, however late its answer comes', () => {
  const ticks = new Ticks()
  const known = new Known<string>(ticks, 10)
  const early = ticks.now
  known.changed('s')
  known.learn('k', 'old', { subject: 's', readAt: early })
  assert.equal(known.sure('k'), undefined)
  assert.equal(known.last('k'), undefined, 'it is told to be wrong')
  assert.equal(known.any('k'), 'old')
  known.learn('k', 'new', { subject: 's', readAt: ticks.now })
  known.learn('k', 'old', { subject: 's', readAt: early })
  assert.deepEqual([known.sure('k'), known.last('k')], ['new', 'new'])
})

test('PL-4 after a time of hearing nothing all is unsure, and what was not told of is kept', () => {
  const ticks = new Ticks()
  const known = new Known<string>(ticks, 10)
  for (const key of ['a', 'b']) known.learn(key, key, { subject: key, readAt: ticks.now })
  known.changedAll()
  assert.deepEqual([known.sure('a'), known.last('a')], [undefined, 'a'])
  known.changed('b')
  assert.deepEqual([known.sure('b'), known.last('b')], [undefined, undefined])
  known.learn('a', 'again', { subject: 'a', readAt: ticks.now })
  assert.equal(known.sure('a'), 'again')
  known.forget('a')
  assert.equal(known.any('a'), undefined)
})

test('PL-4 it is bounded: the oldest go, and too many changes are a change of everything', () => {
  const ticks = new Ticks()
  const known = new Known<number>(ticks, 3)
  for (let i = 0; i < 5; i++) known.learn(`k${i}`, i, { subject: `k${i}`, readAt: ticks.now })
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((i) => known.sure(`k${i}`)),
    [undefined, undefined, 2, 3, 4],
  )
  for (let i = 0; i < 10_001; i++) known.changed(`other${i}`)
  assert.equal(known.sure('k4'), undefined)
  known.learn('k4', 4, { subject: 'k4', readAt: ticks.now })
  assert.equal(known.sure('k4'), 4)
})

test('PL-4 in any order of reads, answers and changes a sure value is the current one', () => {
  const step = fc.constantFrom('begin', 'answer', 'change', 'all')
  fc.assert(
    fc.property(fc.array(fc.tuple(step, fc.nat(5)), { maxLength: 60 }), (steps) => {
      const ticks = new Ticks()
      const known = new Known<number>(ticks, 10)
      let truth = 0
      const reads: { readAt: number; value: number }[] = []
      for (const [what, at] of steps) {
        if (what === 'begin') reads.push({ readAt: ticks.now, value: truth })
        if (what === 'answer' && reads.length > 0) {
          const [read] = reads.splice(at % reads.length, 1)
          known.learn('k', read!.value, { subject: 's', readAt: read!.readAt })
        }
        if (what === 'change') {
          truth++
          known.changed('s')
        }
        if (what === 'all') {
          truth++
          known.changedAll()
        }
        const sure = known.sure('k')
        assert.ok(sure === undefined || sure === truth)
      }
    }),
  )
})

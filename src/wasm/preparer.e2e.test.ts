import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { systemClock as clock } from '#lib/clock.ts'
import { component, preview1 } from '#wasm/fixtures/run-wat.ts'
import { Preparer } from '#wasm/preparer.ts'
import { prepare } from '#wasm/prepare.ts'

test('FN-2 MC-4 components are prepared in the jail, the same as outside, and refusals are the same', async () => {
  const missing: string[] = []
  const preparer = new Preparer({
    clock,
    node: process.execPath,
    onOpen: (notes) => missing.push(...notes.map(({ name, why }) => `${name}: ${why}`)),
  })
  try {
    const bad = component('i32.const 0', '(import "url=<https://x>" (func $g))')
    for (const text of [component('i32.const 0'), preview1([], ''), bad]) {
      const bytes = await parse(text)
      const [inside, outside] = await Promise.all([
        preparer.prepare(bytes, { memMb: 64 }),
        prepare(bytes, { memMb: 64 }),
      ])
      assert.deepEqual(inside, outside)
      assert.equal(inside.ok, text !== bad)
    }
    assert.deepEqual(missing, [], 'a machine of CI has every layer')
  } finally {
    await preparer.close()
  }
})

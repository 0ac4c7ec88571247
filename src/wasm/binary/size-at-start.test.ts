import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { AppError } from '#lib/error.ts'
import { checkMinimum, sizeAtStart } from '#wasm/binary/size-at-start.ts'

test('FN-4 own memories and tables count before anything runs, imported ones where they are made', async () => {
  const size = async (fields: string): Promise<unknown> =>
    sizeAtStart(await parse(`(module ${fields} (func) (data "after"))`))
  assert.deepEqual(await size(''), { bytesAtStart: 0, memoriesAtStart: 0 })
  assert.deepEqual(await size('(memory 2 7) (memory 0)'), {
    bytesAtStart: 131_072,
    memoriesAtStart: 2,
  })
  assert.deepEqual(await size('(memory 1) (table 10 funcref)'), {
    bytesAtStart: 65_536 + 160,
    memoriesAtStart: 1,
  })
  assert.deepEqual(await size('(import "a" "m" (memory 3))'), {
    bytesAtStart: 0,
    memoriesAtStart: 0,
  })
})

test('FN-2 memories that start over the cap together are refused', () => {
  const memories = [{ minPages: 200 }, { minPages: 57 }].map((one) => ({
    ...one,
    maxPages: undefined,
  }))
  checkMinimum(memories.slice(0, 1), 16)
  assert.throws(
    () => checkMinimum(memories, 16),
    (error) => error instanceof AppError && error.details.reason === 'MEMORY_MINIMUM',
  )
})

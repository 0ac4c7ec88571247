import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { AppError } from '#lib/error.ts'
import { readCoreModule } from '#wasm/binary/core-module.ts'
import { limitMemory } from '#wasm/binary/limit-memory.ts'

const limited = async (memory: string, memMb: number): Promise<unknown> =>
  readCoreModule(limitMemory(await parse(`(module ${memory} (func) (data "after"))`), memMb))
    .memories

test('FN-4 every own memory gets a maximum, its own when that is lower', async () => {
  assert.deepEqual(await limited('(memory 1)', 64), [{ minPages: 1, maxPages: 1024 }])
  assert.deepEqual(await limited('(memory 1 65536)', 4096), [{ minPages: 1, maxPages: 65536 }])
  assert.deepEqual(await limited('(memory 2 7) (memory 0)', 16), [
    { minPages: 2, maxPages: 7 },
    { minPages: 0, maxPages: 256 },
  ])
  assert.deepEqual(await limited('', 16), [])
})

test('FN-4 a module without memory is the same bytes', async () => {
  const bytes = await parse('(module (func))')
  assert.equal(limitMemory(bytes, 64), bytes)
})

test('FN-2 a minimum over the cap is refused when the cap is applied as well', async () => {
  const bytes = await parse('(module (memory 257))')
  assert.throws(
    () => limitMemory(bytes, 16),
    (error) => error instanceof AppError && error.details.reason === 'MEMORY_MINIMUM',
  )
})

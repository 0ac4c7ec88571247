// Every requirement that the product claims has a test that names it (docs/checklists/proofs.md).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { proofs, wanted } from '../script/proofs.ts'

test('OP-7 every id of the scope stands in the name of a test', () => {
  const found = proofs()
  assert.deepEqual(
    wanted.filter((id) => !found.has(id)),
    [],
  )
})

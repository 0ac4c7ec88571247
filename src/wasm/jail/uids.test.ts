import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { isRunning, type Owner, ownerName, ownerOf, parseOwner } from '#wasm/jail/owner.ts'
import { Uids, uidsInUse } from '#wasm/jail/uids.ts'

const own = ownerOf(process.pid)
/** Another program that runs: this machine's first. */
const other = ownerOf(1)
const gone: Owner = { pid: 999_999_999, began: '1' }
const range = { first: 3_000_000_001, last: 3_000_000_003 }

function claims(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'clutch-uids-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

test('FN-4 MC-4 each uid is given once, and none when the range is used up', (t) => {
  const uids = new Uids(range, own, claims(t))
  assert.deepEqual(
    [uids.take(), uids.take(), uids.take(), uids.take()],
    [range.first, range.first + 1, range.last, undefined],
  )
})

test('FN-4 MC-4 two programs never have one uid; what one gives back the other may have', (t) => {
  const folder = claims(t)
  const one = new Uids(range, own, folder)
  const two = new Uids(range, other, folder)
  const first = one.take()
  assert.deepEqual([two.take(), two.take(), two.take()], [range.first + 1, range.last, undefined])
  assert.equal(one.take(), undefined)
  one.close()
  assert.equal(two.take(), first)
})

test('FN-4 MC-4 two jails of one program never have one uid', (t) => {
  const folder = claims(t)
  assert.equal(new Uids(range, own, folder).take(), range.first)
  assert.equal(new Uids(range, own, folder).take(), range.first + 1)
})

test('FN-4 MC-4 the claim of a program that is gone counts for nothing', (t) => {
  const folder = claims(t)
  const place = join(folder, String(range.first))
  mkdirSync(place)
  writeFileSync(join(place, ownerName(gone)), '')
  // A pid that came again: another program than the one that claimed.
  writeFileSync(join(place, ownerName({ ...own, began: '1' })), '')
  assert.equal(new Uids(range, own, folder).take(), range.first)
  assert.deepEqual(readdirSync(place), [ownerName(own)])
})

test('FN-4 MC-4 a uid that some process has is not given', (t) => {
  const used = process.getuid?.() ?? 0
  assert.ok(uidsInUse().has(used))
  assert.equal(new Uids({ first: used, last: used }, own, claims(t)).take(), undefined)
})

test('FN-4 an owner is a pid and its beginning', () => {
  assert.ok(isRunning(own) && !isRunning(gone) && !isRunning({ ...own, began: '1' }))
  assert.deepEqual(parseOwner(`${ownerName(own)}-3`), own)
  assert.equal(parseOwner('x-1'), undefined)
})

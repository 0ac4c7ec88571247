import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { component, preview1, refusal } from '#wasm/fixtures/run-wat.ts'
import { COMPONENT_BYTES_MAX, prepare, PREPARER } from '#wasm/prepare.ts'

test('FN-2 the preparer names its generator as it is installed', () => {
  const entry = fileURLToPath(import.meta.resolve('@bytecodealliance/jco-transpile'))
  const manifest: unknown = JSON.parse(
    readFileSync(new URL('../package.json', `file://${entry}`), 'utf8'),
  )
  assert.ok(typeof manifest === 'object' && manifest !== null && 'version' in manifest)
  assert.equal(PREPARER.split('+')[0], `jco-transpile-${String(manifest.version)}`)
})

test('FN-2 wrong magic, text and short files are refused without a child', async () => {
  const outcome = await prepare(Buffer.from('hello there'), { memMb: 64, node: '/no/such/node' })
  assert.ok(!outcome.ok)
  assert.equal(outcome.reason, 'BAD_MAGIC')
  const short = await prepare(Uint8Array.of(0, 0x61), { memMb: 64, node: '/no/such/node' })
  assert.ok(!short.ok)
  assert.equal(short.reason, 'TOO_SHORT')
})

test('FN-2 more than 64 MiB are refused', async () => {
  const outcome = await prepare(new Uint8Array(COMPONENT_BYTES_MAX + 1), { memMb: 64 })
  assert.ok(!outcome.ok)
  assert.equal(outcome.reason, 'TOO_LARGE')
  assert.match(outcome.message, /67108865 bytes, over the limit of 67108864/)
})

test('FN-2 a truncated component and a truncated module are malformed', async () => {
  for (const wat of [component('i32.const 0'), preview1([], 'nop')]) {
    const bytes = await parse(wat)
    for (const length of [9, 20, bytes.length >> 1, bytes.length - 1]) {
      const outcome = await prepare(bytes.subarray(0, length), { memMb: 64 })
      assert.ok(!outcome.ok, `${length} of ${bytes.length}`)
      // Cut between two sections, what is left is whole and merely exports nothing.
      assert.match(outcome.reason, /^(MALFORMED|NO_RUN)$/)
    }
  }
})

test('FN-2 code that does not validate is malformed', async () => {
  const bytes = await parse('(module (func (export "_start") (result i32) (i32.const 7)))')
  const at = bytes.lastIndexOf(7) - 1
  assert.equal(bytes[at], 0x41)
  bytes[at] = 0x42
  const outcome = await prepare(bytes, { memMb: 64 })
  assert.ok(!outcome.ok)
  assert.equal(outcome.reason, 'MALFORMED')
})

test('FN-2 imports outside the world are named with the versions found and offered', async () => {
  const importing = (name: string, body = ''): string =>
    component('i32.const 0', `(import "${name}" (instance ${body}))`)
  const http = await refusal(importing('wasi:http/outgoing-handler@0.2.3'))
  assert.match(http, /^IMPORT_REFUSED: .*"wasi:http\/outgoing-handler@0\.2\.3" \(not offered\)/)
  assert.match(http, /wasi:cli\/environment.*each at 0\.2\.x/)
  assert.match(await refusal(importing('wasi:sockets/tcp@0.2.0')), /wasi:sockets\/tcp@0\.2\.0/)
  const newer = await refusal(importing('wasi:cli/environment@0.3.0'))
  assert.match(newer, /"wasi:cli\/environment@0\.3\.0" \(found version 0\.3\.0, offered 0\.2\.x\)/)
  assert.match(await refusal(importing('wasi:cli/environment')), /found version none/)
  assert.match(await refusal(importing('acme:db/query')), /^IMPORT_REFUSED: .*acme:db\/query/)
  assert.match(await refusal(importing('hasOwnProperty')), /^IMPORT_REFUSED/)
})

test('FN-2 a function or module import is refused even under an offered name', async () => {
  const plain = component('i32.const 0', '(import "do-it" (func))')
  assert.match(await refusal(plain), /^IMPORT_REFUSED: .*"do-it"/)
  const module = component('i32.const 0', '(import "wasi:cli/exit@0.2.0" (core module))')
  assert.match(await refusal(module), /IMPORT_REFUSED|MALFORMED/)
})

test('FN-2 an unknown function of an offered interface is refused at deploy', async () => {
  const wat = component(
    'i32.const 0',
    '(import "wasi:cli/exit@0.2.3" (instance (export "exit-loudly" (func))))',
  )
  assert.match(await refusal(wat), /^IMPORT_REFUSED: .*"exit-loudly" of "wasi:cli\/exit@0\.2\.3"/)
})

test('FN-2 an import whose type is an alias cannot hide what it asks for', async () => {
  const hiding = (how: string): string =>
    component(
      '(call $f) i32.const 0',
      `(type $own (instance (export "constructor" (func)) (export "to-string" (func))))
      ${how}
      (import "wasi:io/poll@0.2.0" (instance $p (type $hidden)))
      (core func $f (canon lower (func $p "to-string")))`,
      '(with "a" (instance (export "f" (func $f))))',
      '(import "a" "f" (func $f))',
    )
  const why = /^IMPORT_REFUSED: .*"wasi:io\/poll@0\.2\.0"/
  assert.match(await refusal(hiding('(alias outer 0 $own (type $hidden))')), why)
  assert.match(await refusal(hiding('(export $hidden "own" (type $own))')), why)
  const nested = '(import "wasi:io/poll@0.2.0" (instance (export "inner" (instance))))'
  assert.match(await refusal(component('i32.const 0', nested)), /^IMPORT_REFUSED: .*"inner"/)
})

test('FN-2 a preview 1 module with another import is refused by its name', async () => {
  const own = '(module (import "env" "launch" (func)) (func (export "_start")))'
  assert.match(await refusal(own), /^IMPORT_REFUSED: .*"env launch"/)
  const unknown =
    '(module (import "wasi_snapshot_preview1" "fd_teleport" (func)) (func (export "_start")))'
  assert.match(await refusal(unknown), /^IMPORT_REFUSED: .*"wasi_snapshot_preview1 fd_teleport"/)
  const memory =
    '(module (import "wasi_snapshot_preview1" "fd_write" (memory 1)) (func (export "_start")))'
  assert.match(await refusal(memory), /^IMPORT_REFUSED/)
})

test('FN-2 a library is refused naming what it exports and what is missing', async () => {
  const reactor = '(module (func (export "_initialize")) (func (export "add")))'
  assert.match(await refusal(reactor), /^NO_RUN: .*"_start".*"_initialize", "add"/)
  const library = `(component (core module $m (func (export "f") (result i32) i32.const 0))
    (core instance $i (instantiate $m)) (func $f (result u32) (canon lift (core func $i "f"))) (export "answer" (func $f)))`
  assert.match(await refusal(library), /^NO_RUN: .*"answer".*wasi:cli\/run@0\.2\.x/)
  const older = component('i32.const 0').replace('wasi:cli/run@0.2.3', 'wasi:cli/run@0.3.0')
  assert.match(await refusal(older), /^NO_RUN: .*wasi:cli\/run@0\.3\.0/)
})

test('FN-2 shared and 64-bit memories are refused', async () => {
  const shared = '(module (memory (export "memory") 1 2 shared) (func (export "_start")))'
  assert.match(await refusal(shared), /^SHARED_MEMORY/)
  const wide = '(module (memory (export "memory") i64 1) (func (export "_start")))'
  assert.match(await refusal(wide), /^MEMORY_64/)
  const inner = component('i32.const 0', '', '', '(memory 1 2 shared)')
  assert.match(await refusal(inner), /^SHARED_MEMORY/)
})

test('FN-2 a memory minimum over memMb is refused with both numbers', async () => {
  const wat = '(module (memory (export "memory") 1025) (func (export "_start")))'
  assert.match(await refusal(wat, 64), /^MEMORY_MINIMUM: .*65 MiB.*allows 64.*at least 65/)
  assert.equal(await refusal(wat, 65), 'accepted')
  const inner = component('i32.const 0', '', '', '(memory 1025)')
  assert.match(await refusal(inner, 64), /^MEMORY_MINIMUM/)
  const sum = '(module (memory (export "memory") 200) (memory 100) (func (export "_start")))'
  assert.match(await refusal(sum, 16), /^MEMORY_MINIMUM: .*19 MiB.*allows 16/)
})

test('FN-2 a module with hundreds of memories is refused, quickly', async () => {
  const wat = `(module (memory (export "memory") 0) ${'(memory 0)'.repeat(20_000)} (func (export "_start")))`
  assert.match(await refusal(wat), /^TOO_MANY_MEMORIES: .*20001 memories; at most 100/)
})

test('FN-2 instructions that cannot be followed are refused, not run unlimited', async () => {
  const wat = '(module (type $s (struct)) (func (export "_start") (drop (struct.new $s))))'
  assert.match(await refusal(wat), /^UNSUPPORTED_(TYPE|INSTRUCTION)/)
})

test('FN-2 a preparer past its deadline is killed and told as such', async () => {
  const outcome = await prepare(await parse(component('i32.const 0')), { memMb: 64, deadlineMs: 5 })
  assert.ok(!outcome.ok)
  assert.equal(outcome.reason, 'PREPARER_TIMEOUT')
  assert.match(outcome.message, /longer than 5 ms/)
})

test('FN-2 a preparer that cannot start is a clear outcome, not a crash', async () => {
  const bytes = await parse(component('i32.const 0'))
  const outcome = await prepare(bytes, { memMb: 64, node: '/no/such/node' })
  assert.ok(!outcome.ok)
  assert.equal(outcome.reason, 'PREPARER_FAILED')
  assert.match(outcome.message, /\/no\/such\/node/)
})

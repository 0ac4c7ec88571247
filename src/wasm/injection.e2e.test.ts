// The glue generator writes names into JavaScript unescaped. Each case tries to become program text.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { decodeArtifact } from '#wasm/artifact.ts'
import { AppError } from '#lib/error.ts'
import { checkMagic } from '#wasm/check.ts'
import { readComponent } from '#wasm/binary/component.ts'
import { readCoreModule } from '#wasm/binary/core-module.ts'
import { component } from '#wasm/fixtures/run-wat.ts'
import { checkWorld } from '#wasm/offered.ts'
import { prepare } from '#wasm/prepare.ts'

/** Program text in the ways a generator could be fooled: a quote, a comment's end, a template, an escape, a line. */
const PAYLOADS = [
  "a':(globalThis.PWN=1),'b",
  'a":(globalThis.PWN=1),"b',
  'a`;globalThis.PWN=1;`',
  '${globalThis.PWN=1}',
  'a*/globalThis.PWN=1/*',
  'a\\n\\u0027',
  'a\u2028globalThis.PWN=1',
  'a\nglobalThis.PWN=1//',
  'a]+(globalThis.PWN=1)+[',
  'a;globalThis.PWN=1',
  '__proto__',
] as const

const wat = (text: string): string =>
  [...Buffer.from(text)].map((byte) => `\\${byte.toString(16).padStart(2, '0')}`).join('')

async function refused(text: string, label: string): Promise<void> {
  const outcome = await prepare(await parse(text), { memMb: 64 })
  assert.ok(!outcome.ok, `${label} was accepted`)
  assert.match(outcome.reason, /^(UNSAFE_NAME|MALFORMED|IMPORT_REFUSED)$/, label)
  assert.ok(!('PWN' in globalThis))
}

/** The reader alone, in this process: it is what stands before every other tool. */
async function refusedByReader(text: string, label: string): Promise<void> {
  const bytes = await parse(text)
  const read = (): void => {
    if (checkMagic(bytes) === 'core') readCoreModule(bytes)
    else checkWorld(readComponent(bytes))
  }
  assert.throws(read, (error) => error instanceof AppError && error.code === 'INVALID', label)
}

const RUN = (instance: string): string => `
  (func $f (result (result)) (canon lift (core func ${instance} "run")))
  (instance $r (export "run" (func $f)))
  (export "wasi:cli/run@0.2.0" (instance $r))`

const F = '(func (export "f") (result i32) i32.const 0)'
const RUNS = '(func (export "run") (result i32) i32.const 0)'

const typed = (type: string): string => component('i32.const 0', type)

/** Where a name can stand, given the name in the text format's escapes. */
const PLACES: Record<string, (name: string) => string> = {
  'core import module name': (
    s,
  ) => `(component (core module $m ${F}) (core instance $i (instantiate $m))
    (core module $k (import "${s}" "f" (func (result i32))) (func (export "run") (result i32) call 0))
    (core instance $j (instantiate $k (with "${s}" (instance $i)))) ${RUN('$j')})`,
  'core import field name': (
    s,
  ) => `(component (core module $m (func (export "${s}") (result i32) i32.const 0))
    (core instance $i (instantiate $m))
    (core module $k (import "a" "${s}" (func (result i32))) (func (export "run") (result i32) call 0))
    (core instance $j (instantiate $k (with "a" (instance $i)))) ${RUN('$j')})`,
  'core export name, aliased': (s) => `(component
    (core module $m (func (export "${s}") (result i32) i32.const 0)) (core instance $i (instantiate $m))
    (func $f (result (result)) (canon lift (core func $i "${s}")))
    (instance $r (export "run" (func $f))) (export "wasi:cli/run@0.2.0" (instance $r)))`,
  'core export name, unused': (s) => `(component
    (core module $m ${RUNS} (func (export "${s}"))) (core instance $i (instantiate $m)) ${RUN('$i')})`,
  'instantiation argument, unused': (
    s,
  ) => `(component (core module $m ${F}) (core instance $i (instantiate $m))
    (core module $k ${RUNS}) (core instance $j (instantiate $k (with "${s}" (instance $i)))) ${RUN('$j')})`,
  'inline core instance': (
    s,
  ) => `(component (core module $m ${F}) (core instance $i (instantiate $m))
    (core func $g (alias core export $i "f")) (core instance $x (export "${s}" (func $g)))
    (core module $k (import "a" "${s}" (func (result i32))) (func (export "run") (result i32) call 0))
    (core instance $j (instantiate $k (with "a" (instance $x)))) ${RUN('$j')})`,
  'module in a nested component': (s) => `(component
    (component $c (core module $m (func (export "${s}")))) (instance $n (instantiate $c))
    (core module $k ${RUNS}) (core instance $j (instantiate $k)) ${RUN('$j')})`,
  'record field': (s) => typed(`(type (record (field "${s}" u32)))`),
  'variant case': (s) => typed(`(type (variant (case "${s}" u32)))`),
  flag: (s) => typed(`(type (flags "${s}"))`),
  'enum case': (s) => typed(`(type (enum "${s}"))`),
  parameter: (s) => typed(`(type (func (param "${s}" u32)))`),
  'function of an imported interface': (s) =>
    typed(`(import "wasi:cli/exit@0.2.0" (instance (export "${s}" (func))))`),
  'type of an imported interface': (s) =>
    typed(`(import "wasi:cli/exit@0.2.0" (instance (export "${s}" (type (sub resource)))))`),
  'component type': (s) =>
    typed(`(type (component (import "${s}" (func)) (export "${s}" (func))))`),
  'second export': (
    s,
  ) => `(component (core module $m ${RUNS}) (core instance $i (instantiate $m)) ${RUN('$i')}
    (export "${s}" (func $f)))`,
  'instance export': (
    s,
  ) => `(component (core module $m ${RUNS}) (core instance $i (instantiate $m)) ${RUN('$i')}
    (instance $x (export "${s}" (func $f))))`,
  'preview 1 export': (s) => `(module (func (export "_start")) (func (export "${s}")))`,
}

for (const [place, make] of Object.entries(PLACES))
  test(`FN-2 program text in the ${place} is refused before any glue exists`, async () => {
    await refused(make(wat(PAYLOADS[0])), place)
    for (const payload of PAYLOADS)
      await refusedByReader(make(wat(payload)), `${place}: ${payload}`)
  })

test('FN-2 URL, integrity and dependency imports are refused, and break nothing after them', async () => {
  for (const name of [
    "url=<https://x'+(globalThis.PWN=5)+'>",
    'url=<https://example.com/a.wasm>',
    'integrity=<sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=>',
    'locked-dep=<a:b@1.0.0>',
    'unlocked-dep=<a:b@{>=1.0.0}>',
  ]) {
    await refused(component('i32.const 0', `(import "${name}" (func $g))`), name)
    await refused(component('i32.const 0', `(import "${name}" (component))`), name)
  }
  assert.ok((await prepare(await parse(component('i32.const 0')), { memMb: 64 })).ok)
})

test('FN-2 names of compilers and toolchains are accepted', async () => {
  const names = [
    '_ZN4core3fmt9Formatter3padE',
    'cabi_post_run',
    '[resource-drop]input-stream',
    '$imports',
    'a b,c|d+e',
  ]
  const exports = names.map((name) => `(func (export "${name}"))`).join(' ')
  const outcome = await prepare(
    await parse(
      `(component (core module $m ${RUNS} ${exports}) (core instance $i (instantiate $m)) ${RUN('$i')})`,
    ),
    { memMb: 64 },
  )
  assert.ok(outcome.ok, JSON.stringify(outcome))
})

test('FN-2 names for debuggers do not reach the glue', async () => {
  const name = '$"a*/globalThis.PWN=1/*"'
  const text = `(component ${name} (core module ${name} (func ${name} (export "run") (result i32) i32.const 0))
    (core instance ${name} (instantiate ${name}))
    (func ${name} (result (result)) (canon lift (core func ${name} "run")))
    (instance $r (export "run" (func ${name}))) (export "wasi:cli/run@0.2.0" (instance $r)))`
  const outcome = await prepare(await parse(text), { memMb: 64 })
  assert.ok(outcome.ok, JSON.stringify(outcome))
  assert.doesNotMatch(decodeArtifact(outcome.artifact).glue, /PWN/)
})

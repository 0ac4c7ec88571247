// FN-5: what four toolchains make of a program does here what the program does natively, byte for byte.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { brotliDecompressSync } from 'node:zlib'
import * as fc from 'fast-check'
import { systemClock } from '#lib/clock.ts'
import { seededRandom } from '#lib/random.ts'
import { run } from '#wasm/fixtures/run-wat.ts'
import { buildC, buildRust, natives, runNative } from '#wasm/fixtures/toolchains/natives.ts'
import type { Input, Output } from '#wasm/fixtures/toolchains/natives.ts'
import { digest, FILTER_SOURCE, PICTURES } from '#wasm/fixtures/toolchains/pictures.ts'
import { RECORDED_FILE, type Recorded } from '#wasm/fixtures/toolchains/pictures.ts'
import { prepare } from '#wasm/prepare.ts'
import { Runner } from '#wasm/runner.ts'

const MEM_MB = 64
const STDOUT_MAX = 1024 * 1024
const MIB = 1024 * 1024
const seed = Number(process.env['CLUTCH_SEED'] ?? randomInt(2 ** 31))
const CASES = process.env['CLUTCH_SOAK'] === undefined ? 8 : 200

const EXAMPLES = join(import.meta.dirname, '../../examples')
const TWINS = join(import.meta.dirname, 'fixtures/toolchains')
const folder = mkdtempSync(join(tmpdir(), 'clutch-native-'))
after(() => rmSync(folder, { recursive: true }))

const read = (path: string): Uint8Array => {
  const bytes = readFileSync(path)
  return path.endsWith('.br') ? brotliDecompressSync(bytes) : bytes
}

/** The component that examples/adapter makes of a core module. */
function componentOf(core: string): Uint8Array {
  const to = join(folder, 'component.wasm')
  const script = join(EXAMPLES, 'adapter/componentize.ts')
  const { status, stderr } = spawnSync(process.execPath, [script, core, to], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  return readFileSync(to)
}

async function withGuest(
  bytes: Uint8Array,
  use: (ask: (input: Input) => Promise<Output>) => Promise<void>,
): Promise<void> {
  const prepared = await prepare(bytes, { memMb: MEM_MB })
  assert.ok(prepared.ok, JSON.stringify(prepared))
  const { artifact } = prepared
  const options = { artifact, memMb: MEM_MB, node: process.execPath, clock: systemClock }
  const runner = await Runner.start(options)
  try {
    await use(async (input) => {
      const { outcome, stdout, stderr } = await run(runner, { ...input, program: 'twin' })
      assert.equal(outcome.kind, 'exited', `${JSON.stringify(outcome)} of ${shown(input)}`)
      const code = outcome.kind === 'exited' ? outcome.exitCode : -1
      assert.equal(outcome.stdoutTruncated, stdout.length === STDOUT_MAX)
      return { code, stdout, stderr: stderr.toString() }
    })
  } finally {
    await runner.close()
  }
}

// ---------------------------------------------------------------- inputs

/** No zero byte, which no argument can have, and no lone surrogate, which is no UTF-8. */
const text = fc
  .string({ unit: 'binary', maxLength: 40 })
  .map((one) => one.replaceAll('\0', '').toWellFormed())

const generated: fc.Arbitrary<Input> = fc.record({
  args: fc
    .tuple(fc.array(text, { maxLength: 6 }), fc.integer({ min: 0, max: 255 }))
    .map(([args, code]) => [...args, `exit=${code}`]),
  env: fc.dictionary(fc.stringMatching(/^T[A-Z0-9_]{0,8}$/), text, {
    maxKeys: 5,
    noNullPrototype: true,
  }),
  stdin: fc.oneof(
    fc.uint8Array({ maxLength: 5000 }),
    fc.string({ unit: 'grapheme', maxLength: 2000 }).map((one) => Buffer.from(one)),
    fc.lorem({ mode: 'sentences', maxCount: 20 }).map((one) => Buffer.from(one)),
  ),
})

const random = seededRandom(`${seed}`)
const NOTHING: Input = { args: [], env: {}, stdin: new Uint8Array(0) }
const inputs: readonly Input[] = [
  NOTHING,
  { ...NOTHING, args: [''], env: { T_EMPTY: '' } },
  ...[1, 137, 255].map((code) => ({ ...NOTHING, args: [`exit=${code}`] })),
  { ...NOTHING, stdin: Buffer.alloc(65_536, 'a line of text\n') },
  { ...NOTHING, stdin: random.bytes(65_537), args: ['ü', '漢字', '🦊', 'exit=9'] },
  { ...NOTHING, stdin: random.bytes(MIB) },
  { ...NOTHING, stdin: Buffer.alloc(MIB + 1, 'Zeile für Zeile\n') },
  ...fc.sample(generated, { seed, numRuns: CASES }),
]

const shown = ({ args, env, stdin }: Input): string =>
  `seed ${seed}: ${JSON.stringify({ args, env, stdin: stdin.length })}`

function same(got: Output, want: Output, what: string): void {
  assert.deepEqual([got.code, got.stderr], [want.code, want.stderr], what)
  if (got.stdout.equals(want.stdout)) return
  assert.equal(got.stdout.toString('utf8', 0, 400), want.stdout.toString('utf8', 0, 400), what)
  assert.fail(`${what}: stdout differs, ${got.stdout.length} bytes for ${want.stdout.length}`)
}

/** What an invocation hands back of it. */
const cut = (output: Output): Output => ({
  ...output,
  stdout: output.stdout.subarray(0, STDOUT_MAX),
})

// ---------------------------------------------------------------- the twins

describe('the twin', () => {
  const expected: Output[] = []

  test(`FN-5 does the same in every language, natively, seed ${seed}`, (t) => {
    const all = natives(folder)
    t.diagnostic(all.map((one) => one.name).join(' · '))
    for (const input of inputs) {
      const [first, ...others] = all.map((one) => ({ name: one.name, output: one.run(input) }))
      for (const { name, output } of others)
        same(output, first!.output, `${name} beside ${first!.name}, ${shown(input)}`)
      expected.push(cut(first!.output))
    }
  })

  const CORES = {
    C: 'twin-c.core.wasm',
    Rust: 'twin-rust.core.wasm',
    AssemblyScript: 'twin-as.core.wasm',
  }
  const forms: [string, () => Uint8Array][] = Object.entries(CORES).flatMap(([name, file]) => [
    [`${name}, a module of preview 1,`, () => read(join(TWINS, file))],
    [`${name}, a component,`, () => componentOf(join(TWINS, file))],
  ])
  forms.push(['JavaScript, a component,', () => read(join(TWINS, 'twin-js.wasm.br'))])
  for (const [name, bytes] of forms)
    test(`FN-5 ${name} answers as it does natively, seed ${seed}`, async () => {
      assert.equal(expected.length, inputs.length)
      await withGuest(bytes(), async (ask) => {
        for (const [i, input] of inputs.entries())
          same(await ask(input), expected[i]!, shown(input))
      })
    })
})

// ---------------------------------------------------------------- the examples

for (const file of ['word-count.wasm', 'word-count.core.wasm'])
  test(`FN-5 ${file} counts as its source built natively does, seed ${seed}`, async (t) => {
    const built = buildC(join(EXAMPLES, 'word-count/word-count.c'), folder)
    t.diagnostic(built ? `built by ${built.compiler}` : 'no C compiler here: beside wc alone')
    const native = (input: Input): Output => {
      if (built) return runNative(built.file, [], input)
      return runNative('wc', [], { ...input, env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' } })
    }
    await withGuest(read(join(EXAMPLES, 'word-count', file)), async (ask) => {
      for (const { stdin } of inputs) {
        // What is no printable ASCII is a word to some versions of wc.
        const plain = built ? stdin : stdin.map((byte) => 32 + (byte % 95))
        for (const args of [[], ['-l'], ['-w', '-c'], ['-lwmc']]) {
          const input = { args, env: {}, stdin: plain }
          same(await ask(input), native(input), shown(input))
        }
      }
      if (!built) return
      const wrong = { ...NOTHING, args: ['--frogs'] }
      same(await ask(wrong), native(wrong), 'a wrong argument')
    })
  })

test('FN-5 image-filter filters as its source built natively does', async (t) => {
  const recorded = JSON.parse(readFileSync(RECORDED_FILE, 'utf8')) as Recorded
  const built = buildRust(FILTER_SOURCE, folder)
  t.diagnostic(
    `recorded by ${recorded.madeBy}; ${built ? `built by ${built.compiler}` : 'no rustc here'}`,
  )
  assert.deepEqual(
    recorded.answers.map((one) => one.args),
    PICTURES.map((one) => one.args),
  )
  await withGuest(read(join(EXAMPLES, 'image-filter/image-filter.wasm')), async (ask) => {
    for (const [i, { args, stdin }] of PICTURES.entries()) {
      const input = { args, stdin, env: {} }
      const answer = await ask(input)
      assert.equal(digest(answer), recorded.answers[i]?.sha256, shown(input))
      if (built) same(answer, runNative(built.file, [], input), shown(input))
    }
  })
})

// The examples' checked-in .wasm files, prepared and run as the platform does, against wc and a plain
// reference. They are not built here: no toolchain is needed.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { after, before, describe, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { seededRandom, type Random } from '#lib/random.ts'
import { prepare } from '#wasm/prepare.ts'
import { Runner, type InvokeSpec } from '#wasm/runner.ts'
import type { RunOutcome } from '#wasm/outcome.ts'

const memMb = 64
const seed = process.env['CLUTCH_SEED'] ?? randomBytes(4).toString('hex')

type Ran = { outcome: RunOutcome; code: number; stdout: Buffer; stderr: string }

/** A fresh runner of a file under examples/. */
async function start(file: string): Promise<Runner> {
  const bytes = await readFile(new URL(`../examples/${file}`, import.meta.url))
  const prepared = await prepare(bytes, { memMb })
  assert.ok(prepared.ok, prepared.ok ? '' : `${file}: ${prepared.reason} ${prepared.message}`)
  const { artifact, kind } = prepared
  assert.equal(kind, file.endsWith('.core.wasm') ? 'preview1' : 'component')
  return Runner.start({ artifact, memMb, node: process.execPath, clock: systemClock })
}

async function invoke(
  runner: Runner,
  args: string[],
  stdin: Uint8Array = new Uint8Array(0),
  more: Partial<InvokeSpec> = {},
): Promise<Ran> {
  const stdout: Uint8Array[] = []
  const stderr: Uint8Array[] = []
  const outcome = await runner.invoke({
    args,
    env: {},
    stdin,
    timeoutMs: 20_000,
    onStdout: (chunk) => void stdout.push(Uint8Array.from(chunk)),
    onStderr: (chunk) => stderr.push(Uint8Array.from(chunk)),
    ...more,
  })
  return {
    outcome,
    code: outcome.kind === 'exited' ? outcome.exitCode : -1,
    stdout: Buffer.concat(stdout),
    stderr: Buffer.concat(stderr).toString(),
  }
}

// ---------------------------------------------------------------- word-count

/** `LC_ALL=C wc` reading a pipe. */
function wc(input: Uint8Array, args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync('wc', args, {
    input,
    env: { PATH: process.env['PATH'], LC_ALL: 'C' },
  })
  assert.equal(status, 0, error?.message ?? stderr.toString())
  return stdout.toString()
}

/** Some versions of wc count a run of unprintable bytes as a word; word-count follows those that do not. */
const wcCountsUnprintable = wc(Buffer.from([0x80]), ['-w']).trim() === '1'

const spaces = [0x20, 0x09, 0x0a, 0x0b, 0x0c, 0x0d]

/** Words by a regular expression over one character a byte. */
function wordsOf(input: Uint8Array): number {
  return (
    Buffer.from(input)
      .toString('latin1')
      .match(/[^\t-\r ]+/g)
      ?.filter((run) => /[!-~]/.test(run)).length ?? 0
  )
}

/** Random bytes a page at a time, which is quick for megabytes. */
function bytesOf(random: Random, size: number): Buffer {
  const pages = Array.from({ length: Math.ceil(size / 1024) }, () => random.bytes(1024))
  return Buffer.concat(pages, size)
}

const mapBytes = (random: Random, size: number, map: (byte: number) => number): Buffer =>
  Buffer.from(bytesOf(random, size).map(map))

const letters = [
  'a',
  'Z',
  '~',
  '!',
  '0',
  'é',
  'ß',
  '\u00a0',
  '\u3000',
  '\u2028',
  '漢',
  '🦊',
  '\u0301',
]

/** `size` bytes or a few more. */
const makers: Record<string, (random: Random, size: number) => Buffer> = {
  binary: (random, size) => bytesOf(random, size),
  utf8: (random, size) => {
    const parts: string[] = []
    while (parts.length < size) {
      const isSpace = random.below(4) === 0
      const code = spaces[random.below(spaces.length)]!
      parts.push(isSpace ? String.fromCharCode(code) : letters[random.below(letters.length)]!)
    }
    return Buffer.from(parts.join(''))
  },
  spaces: (random, size) => mapBytes(random, size, (byte) => spaces[byte % 6]!),
  control: (random, size) => mapBytes(random, size, (byte) => byte % 0x22),
  edges: (random, size) =>
    mapBytes(random, size, (byte) => [0x20, 0x21, 0x7e, 0x7f, 0x80, 0xff][byte % 6]!),
  'one word': (_random, size) => Buffer.alloc(size, 'w'),
}

const options = [[], ['-l'], ['-w'], ['-c'], ['-m'], ['-lw'], ['-cl'], ['-l', '--bytes'], ['-lwmc']]

for (const file of ['word-count/word-count.wasm', 'word-count/word-count.core.wasm']) {
  describe(file, () => {
    let runner: Runner
    before(async () => {
      runner = await start(file)
    })
    after(() => runner.close())

    const compare = async (input: Buffer, args: string[], what: string): Promise<void> => {
      const ran = await invoke(runner, args, input)
      assert.deepEqual({ code: ran.code, stderr: ran.stderr }, { code: 0, stderr: '' }, what)
      if (wcCountsUnprintable) {
        // Then wc is asked for the other numbers, and for words only our own reference.
        const [lines, words, bytes] = (await invoke(runner, [], input)).stdout
          .toString()
          .trim()
          .split(/ +/)
        assert.equal(words, String(wordsOf(input)), what)
        assert.equal(`${lines}\n${bytes}\n`, wc(input, ['-l']) + wc(input, ['-c']), what)
      } else {
        assert.equal(ran.stdout.toString(), wc(input, args), what)
        const words = (await invoke(runner, ['-w'], input)).stdout.toString()
        assert.equal(words, `${wordsOf(input)}\n`, what)
      }
    }

    for (const [name, make] of Object.entries(makers)) {
      test(`FN-5 counts what wc counts: ${name}, seed ${seed}`, async () => {
        const random = seededRandom(`${seed} ${name}`)
        for (let round = 0; round < 12; round++) {
          const input = make(random, random.below(2 ** (1 + random.below(14))))
          const args = options[random.below(options.length)]!
          await compare(input, args, `seed ${seed}, round ${round}, ${args.join(' ')}`)
        }
      })
    }

    test(`FN-5 counts what wc counts: around its 64 KiB blocks, past the inline stdin, seed ${seed}`, async () => {
      const random = seededRandom(`${seed} sizes`)
      for (const size of [0, 1, 65_535, 65_536, 65_537, 131_072, 262_145, 1_500_000]) {
        await compare(bytesOf(random, size), [], `binary, ${size} bytes`)
        await compare(Buffer.alloc(size, 'w'), [], `one word, ${size} bytes`)
      }
    })

    test('FN-5 stdin in chunks of any size counts as one', async () => {
      const random = seededRandom(`${seed} chunks`)
      const input = bytesOf(random, 200_000)
      async function* chunks(): AsyncGenerator<Uint8Array> {
        for (let at = 0; at < input.length;) {
          const size = random.below(20_000)
          yield input.subarray(at, at + size)
          at += size
        }
      }
      const whole = await invoke(runner, [], input)
      const cut = await invoke(runner, [], undefined, { stdin: chunks() })
      assert.equal(cut.stdout.toString(), whole.stdout.toString(), `seed ${seed}`)
    })

    test('FN-3 exit code 2 and a reason for an argument that is no option', async () => {
      for (const args of [['-x'], ['-lx'], ['--line'], ['file.txt'], ['-'], ['']]) {
        const { code, stdout, stderr } = await invoke(runner, args, Buffer.from('a b\n'))
        assert.equal(code, 2, args.join(' '))
        assert.equal(stdout.length, 0)
        assert.match(stderr, /^word-count: takes -l -w -m -c .*not an option: /)
        assert.ok(stderr.endsWith(`: ${args[0]}\n`))
      }
    })
  })
}

// ---------------------------------------------------------------- image-filter

type Picture = { width: number; height: number; samples: Uint8Array }

const encode = ({ width, height, samples }: Picture): Buffer =>
  Buffer.concat([Buffer.from(`P6\n${width} ${height}\n255\n`), samples])

const clamp = (at: number, length: number): number => Math.min(Math.max(at, 0), length - 1)

/** The mean, halves up, of `pick(x, y)` over the half-open ranges. */
function mean(
  [left, right]: [number, number],
  [top, bottom]: [number, number],
  pick: (x: number, y: number) => number,
): number {
  let sum = 0
  for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) sum += pick(x, y)
  return Math.floor(sum / ((right - left) * (bottom - top)) + 0.5)
}

/** A picture made sample by sample: slow, and plainly what the README says. */
function made(
  width: number,
  height: number,
  sample: (x: number, y: number, channel: number) => number,
): Picture {
  const samples = new Uint8Array(width * height * 3)
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let channel = 0; channel < 3; channel++)
        samples[(y * width + x) * 3 + channel] = sample(x, y, channel)
  return { width, height, samples }
}

const reference = {
  gray: (p: Picture): Picture =>
    made(p.width, p.height, (x, y) => {
      const [red, green, blue] = p.samples.subarray((y * p.width + x) * 3)
      return Math.floor((299 * red! + 587 * green! + 114 * blue! + 500) / 1000)
    }),
  invert: (p: Picture): Picture => ({ ...p, samples: p.samples.map((sample) => 255 - sample) }),
  blur: (p: Picture, radius: number): Picture =>
    made(p.width, p.height, (x, y, channel) =>
      mean([x - radius, x + radius + 1], [y - radius, y + radius + 1], (column, row) => {
        const at = clamp(row, p.height) * p.width + clamp(column, p.width)
        return p.samples[at * 3 + channel]!
      }),
    ),
  shrink: (p: Picture, width: number, height: number): Picture => {
    const range = (at: number, old: number, size: number): [number, number] => [
      Math.floor((at * old) / size),
      Math.floor(((at + 1) * old) / size),
    ]
    return made(width, height, (x, y, channel) =>
      mean(range(x, p.width, width), range(y, p.height, height), (column, row) => {
        return p.samples[(row * p.width + column) * 3 + channel]!
      }),
    )
  },
}

/** A random step that fits the picture: its arguments and the picture after it. */
function randomStep(random: Random, picture: Picture): { args: string[]; after: Picture } {
  const kind = random.below(4)
  if (kind === 0) return { args: ['gray'], after: reference.gray(picture) }
  if (kind === 1) return { args: ['invert'], after: reference.invert(picture) }
  if (kind === 2) {
    const radius = 1 + random.below(random.below(5) === 0 ? 40 : 6)
    return { args: ['blur', `${radius}`], after: reference.blur(picture, radius) }
  }
  const [width, height] = [1 + random.below(picture.width), 1 + random.below(picture.height)]
  const args = ['shrink', `${width}`, `${height}`]
  return { args, after: reference.shrink(picture, width, height) }
}

describe('image-filter/image-filter.wasm', () => {
  let runner: Runner
  before(async () => {
    runner = await start('image-filter/image-filter.wasm')
  })
  after(() => runner.close())

  const randomPicture = (random: Random, side: number): Picture => {
    const [width, height] = [1 + random.below(side), 1 + random.below(side)]
    return { width, height, samples: bytesOf(random, width * height * 3) }
  }

  test(`FN-5 filters as a plain reference does, byte for byte, seed ${seed}`, async () => {
    for (let round = 0; round < 60; round++) {
      const random = seededRandom(`${seed} picture ${round}`)
      let picture = randomPicture(random, 2 ** random.below(6))
      const input = encode(picture)
      const args: string[] = []
      for (let left = random.below(4); left > 0; left--) {
        const step = randomStep(random, picture)
        args.push(...step.args)
        picture = step.after
      }
      const what = `seed ${seed}, round ${round}, ${args.join(' ')}`
      const { code, stdout, stderr } = await invoke(runner, args, input)
      assert.deepEqual({ code, stderr }, { code: 0, stderr: '' }, what)
      assert.ok(stdout.equals(encode(picture)), what)
    }
  })

  test('FN-5 a header with comments and any white space reads the same', async () => {
    const picture = randomPicture(seededRandom(seed), 9)
    const { width, height, samples } = picture
    const header = `P6#one\n \t${width}# two\r#three\n\v${height} #\n#\n255\f`
    const input = Buffer.concat([Buffer.from(header), samples])
    assert.ok((await invoke(runner, [], input)).stdout.equals(encode(picture)), `seed ${seed}`)
  })

  test('FN-4 the largest picture, blurred and shrunk, fits into 64 MiB', async () => {
    const [width, height] = [2048, 1024]
    const samples = Buffer.alloc(width * height * 3, 'clutch')
    const args = ['blur', '255', 'shrink', '512', '256']
    const { outcome, code, stdout } = await invoke(runner, args, encode({ width, height, samples }))
    assert.equal(code, 0)
    const header = Buffer.from('P6\n512 256\n255\n')
    assert.ok(stdout.subarray(0, header.length).equals(header))
    assert.equal(stdout.length, header.length + 512 * 256 * 3)
    const peak = outcome.memPeakMb ?? 0
    assert.ok(peak > 30 && peak <= memMb, `${peak} MiB`)
  })

  const refusals: { args?: string[]; input?: string; code: number; says: RegExp }[] = [
    { input: '', code: 3, says: /does not begin with P6/ },
    { input: 'P5 1 1 255 a', code: 3, says: /does not begin with P6/ },
    { input: 'P6 x', code: 3, says: /byte 3 should begin the width/ },
    { input: 'P6 2', code: 3, says: /byte 4 should begin the height/ },
    { input: 'P6 -1 2 255 ', code: 3, says: /byte 3 should begin the width/ },
    { input: 'P6 0 2 255 ', code: 3, says: /empty: 0 x 2/ },
    { input: 'P6 1 1 65535 aaaaaa', code: 3, says: /must be 255, not 65535/ },
    { input: 'P6 1 1 255', code: 3, says: /must end with one white-space byte/ },
    { input: 'P6 1 1 255 ab', code: 3, says: /1 x 1 needs 3 bytes of samples, not 2/ },
    { input: 'P6 1 1 255 abcd', code: 3, says: /needs 3 bytes of samples, not 4/ },
    { input: 'P6 2048 1025 255 ', code: 3, says: /larger than 2097152 pixels/ },
    { input: 'P6 4294967296 4294967296 255 ', code: 3, says: /larger than/ },
    { input: `P6 ${'9'.repeat(99)} 1 255 `, code: 3, says: /larger than/ },
    { args: ['sharpen'], code: 2, says: /not a step: "sharpen"; takes steps: gray/ },
    { args: ['gray', 'blur'], code: 2, says: /blur's radius is missing/ },
    { args: ['blur', '0'], code: 2, says: /blur's radius is a number from 1 to 255, not "0"/ },
    { args: ['blur', '256'], code: 2, says: /from 1 to 255, not "256"/ },
    { args: ['shrink', '1'], code: 2, says: /shrink's height is missing/ },
    { args: ['shrink', '1', '-1'], code: 2, says: /shrink's height is a number/ },
    { args: ['shrink', '2', '1'], code: 2, says: /cannot shrink 1 x 1 to 2 x 1/ },
  ]
  for (const { args = [], input = 'P6 1 1 255 abc', code, says } of refusals) {
    test(`FN-3 exit code ${code}: ${JSON.stringify([...args, input]).slice(0, 60)}`, async () => {
      const ran = await invoke(runner, args, Buffer.from(input))
      assert.equal(ran.code, code, ran.stderr)
      assert.match(ran.stderr, says)
      assert.equal(ran.stdout.length, 0)
    })
  }
})

// ---------------------------------------------------------------- probe

for (const file of ['probe/probe.wasm', 'probe/probe.core.wasm']) {
  describe(file, () => {
    let runner: Runner
    before(async () => {
      runner = await start(file)
    })
    after(() => runner.close())

    test('FN-3 every exit code from 0 to 255 passes unchanged, from exit and from main', async () => {
      for (let code = 0; code <= 255; code++)
        assert.equal((await invoke(runner, ['exit', `${code}`])).code, code)
      for (const code of [0, 1, 2, 127, 255])
        assert.equal((await invoke(runner, ['return', `${code}`])).code, code)
    })

    test('FN-5 arguments, environment, stdin, stdout and stderr', async () => {
      const args = ['args', 'env', 'read', '2', 'echo', 'err', 'to stderr ☃']
      const env = { GREETING: 'grüß dich', EMPTY: '' }
      const ran = await invoke(runner, args, Buffer.from('abcdef'), { env, program: 'prog' })
      assert.equal(ran.code, 0)
      assert.equal(
        ran.stdout.toString(),
        ['prog', ...args, 'GREETING=grüß dich', 'EMPTY=', 'cdef'].join('\n'),
      )
      assert.equal(ran.stderr, 'to stderr ☃\n')
    })

    test('FN-5 stdout and stderr in the pattern the README says', async () => {
      const pattern = (length: number): string =>
        Array.from({ length }, (_, at) =>
          at % 64 === 63
            ? '\n'
            : String.fromCharCode(97 + ((Math.floor(at / 64) + (at % 64)) % 26)),
        ).join('')
      const ran = await invoke(runner, ['stdout', '150000', 'stderr', '1000'])
      assert.equal(ran.stdout.toString(), pattern(150_000))
      assert.equal(ran.stderr, pattern(1000))
    })

    test('FN-5 clocks go on over a sleep, random bytes differ', async () => {
      const args = [
        'monotonic',
        'now',
        'sleep',
        '30',
        'monotonic',
        'now',
        'random',
        '16',
        'random',
        '16',
      ]
      const lines = (await invoke(runner, args)).stdout.toString().split('\n')
      const [ticks, now, ticksLater, nowLater] = lines.slice(0, 4).map(BigInt)
      assert.ok(ticksLater! - ticks! >= 30_000_000n, lines.join(' '))
      assert.ok(nowLater! > now!, lines.join(' '))
      assert.match(lines[4]!, /^[0-9a-f]{32}$/)
      assert.notEqual(lines[4], lines[5])
    })

    test('FN-4 no files', async () => {
      const ran = await invoke(runner, ['open', '/etc/passwd', 'open', 'probe.c'])
      assert.equal(ran.code, 0)
      assert.doesNotMatch(ran.stdout.toString(), /opened/)
    })

    test('FN-3 a closed stream fails the next step on it, in words', async () => {
      const ran = await invoke(
        runner,
        ['close', 'stdin', 'out', 'before', 'count'],
        Buffer.from('x'),
      )
      assert.equal(ran.code, 1)
      assert.equal(ran.stdout.toString(), 'before\n')
      assert.match(ran.stderr, /^probe: count: /)
    })

    test('FN-3 a step that does not exist exits with 2', async () => {
      for (const args of [['frog'], ['frog', '1'], ['exit'], ['exit', 'x'], ['trap', 'x']])
        assert.equal((await invoke(runner, args)).code, 2, args.join(' '))
    })

    for (const args of [
      ['trap', 'unreachable'],
      ['trap', 'memory'],
      ['trap', 'divide'],
      ['trap', 'call'],
      ['abort'],
      ['frames', 'forever'],
      ['recurse', 'forever'],
    ])
      test(`FN-3 ${args.join(' ')} is a trap, and what came before it is kept`, async () => {
        const ran = await invoke(runner, ['out', 'before', ...args])
        assert.equal(ran.outcome.kind, 'trap')
        assert.equal(ran.stdout.toString(), 'before\n')
        assert.equal((await invoke(runner, ['out', 'again'])).stdout.toString(), 'again\n')
      })

    test('FN-4 memory is refused at the cap and not before', async () => {
      assert.equal((await invoke(runner, ['eat', '48'])).code, 0)
      const ran = await invoke(runner, ['eat', 'forever'])
      assert.equal(ran.code, 12)
      assert.match(ran.stderr, /memory.grow was refused/)
      const peak = ran.outcome.memPeakMb ?? 0
      assert.ok(peak > memMb - 1 && peak <= memMb, `${peak} MiB`)
    })

    test('FN-4 spinning and sleeping for ever end at the cap as timeout', async () => {
      for (const args of [
        ['spin', 'forever'],
        ['sleep', 'forever'],
      ]) {
        const victim = await start(file)
        const ran = await invoke(victim, ['out', 'before', ...args], undefined, { timeoutMs: 400 })
        assert.equal(ran.outcome.kind, 'timeout', args.join(' '))
        assert.equal(ran.stdout.toString(), 'before\n')
        await victim.close()
      }
    })
  })
}

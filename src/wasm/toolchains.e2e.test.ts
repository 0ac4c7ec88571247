// Programs of real toolchains (examples/), in both forms, through the whole of this room.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { systemClock } from '#lib/clock.ts'
import { type Ran, run } from '#wasm/fixtures/run-wat.ts'
import { prepare } from '#wasm/prepare.ts'
import { type InvokeSpec, Runner } from '#wasm/runner.ts'

const MEM_MB = 16

const options = { memMb: MEM_MB, node: process.execPath, clock: systemClock }

async function artifactOf(path: string): Promise<Uint8Array> {
  const bytes = readFileSync(new URL(`../../examples/${path}`, import.meta.url))
  const outcome = await prepare(bytes, { memMb: MEM_MB })
  assert.ok(outcome.ok, JSON.stringify(outcome))
  return outcome.artifact
}

const codeOf = ({ outcome }: Ran): unknown =>
  outcome.kind === 'exited' ? outcome.exitCode : JSON.stringify(outcome)

for (const file of ['probe/probe.wasm', 'probe/probe.core.wasm'])
  describe(file, () => {
    let artifact: Uint8Array
    let runner: Runner
    before(async () => {
      artifact = await artifactOf(file)
      runner = await Runner.start({ ...options, artifact })
    })
    after(async () => runner.close())

    const probe = (steps: string, spec: Partial<InvokeSpec> = {}): Promise<Ran> =>
      run(runner, { args: steps.split(' '), ...spec })

    test('FN-5 exit codes pass exactly', async () => {
      for (const code of [0, 1, 3, 137, 255]) {
        assert.equal(codeOf(await probe(`exit ${code}`)), code)
        assert.equal(codeOf(await probe(`return ${code}`)), code)
      }
    })

    test('FN-5 arguments, environment, stdin and both outputs', async () => {
      const args = await probe('args', { program: 'probe' })
      assert.equal(args.stdout.toString(), 'probe\nargs\n')
      const env = await probe('env', { env: { FOO: 'bar', B: '2' } })
      assert.equal(env.stdout.toString(), 'FOO=bar\nB=2\n')
      const stdin = Buffer.alloc(600_000, 'stdin ')
      assert.deepEqual((await probe('echo', { stdin })).stdout, stdin)
      const both = await probe('out to-stdout err to-stderr')
      assert.deepEqual(
        [both.stdout.toString(), both.stderr.toString()],
        ['to-stdout\n', 'to-stderr\n'],
      )
      assert.equal(
        (await probe('read 1 close stdin out done', { stdin })).stdout.toString(),
        'done\n',
      )
    })

    test('FN-5 clocks, sleep and randomness', async () => {
      const now = Number((await probe('now')).stdout.toString().trim()) / 1e6
      assert.ok(Math.abs(now - systemClock.now()) < 60_000)
      const slept = await probe('sleep 40')
      assert.ok(slept.outcome.durationMs >= 40, `${slept.outcome.durationMs}`)
      const [one, two] = [await probe('random 16'), await probe('random 16')]
      assert.equal(one.stdout.toString().trim().length, 32)
      assert.notEqual(one.stdout.toString(), two.stdout.toString())
    })

    test('FN-4 there are no files', async () => {
      const { stdout } = await probe('open /etc/passwd')
      assert.doesNotMatch(stdout.toString(), /^opened/)
    })

    test('FN-3 traps are told as traps, with where they happened', async () => {
      for (const [steps, words] of [
        ['abort', /unreachable/],
        ['trap unreachable', /unreachable/],
        ['trap memory', /out of bounds memory access/],
        ['trap divide', /integer divide by zero/],
        ['trap call', /indirect call type mismatch|out of bounds table/],
        ['recurse forever', /call stack exhausted/],
        ['frames forever', /out of bounds memory access|call stack exhausted/],
        ['trap divide', /\(at trap < main < /],
      ] as const) {
        const { outcome } = await probe(`out before ${steps}`)
        assert.equal(outcome.kind, 'trap', `${steps}: ${JSON.stringify(outcome)}`)
        assert.match(outcome.kind === 'trap' ? outcome.message : '', words, steps)
      }
    })

    test('FN-3 memory is capped, and its peak is told', async () => {
      const some = await probe('eat 8')
      assert.equal(codeOf(some), 0)
      assert.ok(Number(some.outcome.memPeakMb) >= 8 && Number(some.outcome.memPeakMb) <= MEM_MB)
      assert.equal(codeOf(await probe('eat 100')), 12)
    })

    test('FN-3 floods are cut', async () => {
      const { outcome, stdout, stderr } = await probe('stdout 3000000 stderr 3000000 exit 3')
      assert.equal(outcome.kind === 'exited' && outcome.exitCode, 3)
      assert.deepEqual([stdout.length, stderr.length], [1024 * 1024, 256 * 1024])
      assert.deepEqual([outcome.stdoutTruncated, outcome.stderrTruncated], [true, true])
    })

    test('FN-4 a loop ends at its cap and keeps what it wrote', async () => {
      const spinner = await Runner.start({ ...options, artifact })
      const { outcome, stdout } = await run(spinner, {
        args: ['out', 'kept', 'spin', 'forever'],
        timeoutMs: 300,
      })
      await spinner.close()
      assert.equal(outcome.kind, 'timeout')
      assert.equal(stdout.toString(), 'kept\n')
    })
  })

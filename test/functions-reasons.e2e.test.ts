// Every way an invocation can end, through the real parts: its one true reason, its words, and nothing else disturbed.
import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { cpuMs, descendants, isGone, type Proc } from '#sim/bench/process-tree.ts'
import { until } from '#lib/until.ts'
import { refusal, startPlatform, type Agent, type Invoked } from '#test/platform.ts'

const platform = await startPlatform({ after })
const { orgId } = platform
const { compute } = platform.api
const agent = await platform.startNode('node-r1')

const FUEL_MAX = 50_000_000
const MEM_MB = 16
const STDOUT_MAX = 1024 * 1024
const STDERR_MAX = 256 * 1024

const FORMS = { component: 'probe/probe.wasm', preview1: 'probe/probe.core.wasm' }
for (const [name, file] of Object.entries(FORMS)) {
  const options = { cpuMillis: 200, memMb: MEM_MB, timeoutMs: 20_000 }
  await platform.deploy(name, file, options)
  await platform.deploy(`${name}-fuel`, file, { ...options, fuelMax: FUEL_MAX })
}

type End = Pick<Invoked, 'ok' | 'reason' | 'exitCode'>
const endOf = ({ ok, reason, exitCode }: Invoked): End => ({ ok, reason, exitCode })
const failedFor = (reason: Invoked['reason']): End => ({ ok: false, reason, exitCode: null })
const exited = (code: number): End => ({
  ok: code === 0,
  reason: code === 0 ? undefined : 'exit',
  exitCode: code,
})

const pids = (): number[] => [platform.engine.pid, agent.program.pid]
const PIDS = pids()

/** The function answers as if nothing had been, and neither program was started again. */
async function assertNormal(name: string): Promise<void> {
  const next = await platform.probe(name, ['out', 'again'])
  assert.deepEqual(
    [next.ok, next.exitCode, next.error, next.stdout],
    [true, 0, undefined, 'again\n'],
  )
  assert.deepEqual(pids(), PIDS)
  assert.ok(platform.engine.running && agent.program.running)
}

async function ends(
  name: string,
  steps: string,
  want: End,
  error: RegExp | undefined,
): Promise<Invoked> {
  const options = want.reason === 'timeout' ? { timeoutMs: 400 } : {}
  const ran = await platform.probe(name, ['out', 'before', ...steps.split(' ')], options)
  assert.deepEqual(endOf(ran), want, JSON.stringify({ ...ran, stdout: ran.stdout.slice(0, 99) }))
  if (error === undefined) assert.equal(ran.error, undefined)
  else assert.match(ran.error ?? '', error)
  assert.ok(ran.stdout.startsWith('before\n'), 'what came before the end is kept')
  assert.equal(ran.node_id, 'node-r1')
  await assertNormal(name)
  return ran
}

for (const name of Object.keys(FORMS))
  describe(name, () => {
    test('FN-3 000-60 000-62 exit: the code unchanged, an error if and only if it is not 0', async () => {
      await ends(name, 'exit 0', exited(0), undefined)
      for (const code of [1, 2, 137, 255])
        await ends(name, `exit ${code}`, exited(code), RegExp(`^exited with code ${code}$`))
    })

    for (const [steps, error] of [
      ['trap unreachable', /^unreachable instruction executed \(at trap < main < /],
      ['trap divide', /^integer divide by zero \(at trap < main < /],
      ['trap memory', /^out of bounds memory access \(at trap < main < /],
      ['trap call', /^(indirect call type mismatch|.*table.*) \(at trap < main < /],
      ['abort', /^unreachable instruction executed \(at abort < main < /],
      ['recurse forever', /call stack exhausted \(at recurse < recurse < /],
      ['frames forever', /\(at recurse_frames < recurse_frames < /],
    ] as const)
      test(`FN-3 trap: ${steps} names what happened and the guest's functions`, async () => {
        await ends(name, steps, failedFor('trap'), error)
      })

    test('FN-3 memory: a guest that dies for want of it', async () => {
      const ran = await ends(name, 'starve', failedFor('memory'), /\(at starve < main < /)
      const peak = ran.memPeakMb ?? 0
      assert.ok(peak > MEM_MB - 1 && peak <= MEM_MB, `${peak} MiB`)
    })

    test('FN-3 memory: a guest that copes with a refused growth ends as it likes', async () => {
      const ran = await ends(name, 'eat forever', exited(12), /^exited with code 12$/)
      assert.equal(ran.stderr, 'probe: eat: memory.grow was refused\n')
    })

    test('FN-3 timeout: spinning and sleeping for ever end at their cap', async () => {
      for (const steps of ['spin forever', 'sleep forever']) {
        const ran = await ends(name, steps, failedFor('timeout'), /400 ms/)
        assert.ok(ran.durationMs >= 400 && ran.durationMs < 3_000, `${steps}: ${ran.durationMs} ms`)
      }
    })

    test('FN-3 D44 fuel: what burns it ends for it, what does not is told what it burnt', async () => {
      const ran = await ends(`${name}-fuel`, 'spin forever', failedFor('fuel'), /fuel/)
      assert.ok((ran.fuelUsed ?? 0) >= FUEL_MAX, `${ran.fuelUsed}`)
      const once = await platform.probe(`${name}-fuel`, ['spin', '1000'])
      const twice = await platform.probe(`${name}-fuel`, ['spin', '1000'])
      const more = await platform.probe(`${name}-fuel`, ['spin', '100000'])
      assert.deepEqual(endOf(once), exited(0))
      assert.equal(once.fuelUsed, twice.fuelUsed, 'the same work burns the same')
      assert.ok(
        (more.fuelUsed ?? 0) - (once.fuelUsed ?? 0) >= 99_000,
        `${once.fuelUsed} ${more.fuelUsed}`,
      )
    })

    test('FN-3 a gigabyte on stdout is cut and the guest runs on to its own exit', async () => {
      const steps = 'flood 1024 stderr 3000000 exit 3'
      const ran = await ends(name, steps, exited(3), /^exited with code 3$/)
      assert.deepEqual([ran.stdout.length, ran.stderr.length], [STDOUT_MAX, STDERR_MAX])
      assert.deepEqual([ran.stdoutTruncated, ran.stderrTruncated], [true, true])
    })

    test('FN-3 a guest that closes its stdin, or does not read it, ends as it likes', async () => {
      const stdin = 'unread '.repeat(100_000)
      const closed = await platform.probe(name, ['close', 'stdin', 'count'], { stdin })
      assert.deepEqual(endOf(closed), exited(1))
      assert.match(closed.stderr, /^probe: count: /)
      const early = await platform.probe(name, ['read', '1', 'close', 'stdin', 'out', 'x'], {
        stdin,
      })
      assert.deepEqual([endOf(early), early.stdout], [exited(0), 'x\n'])
      const silent = await platform.probe(name, ['close', 'stdout', 'close', 'stderr', 'exit', '9'])
      assert.deepEqual([endOf(silent), silent.stdout, silent.stderr], [exited(9), '', ''])
      await assertNormal(name)
    })
  })

test('FN-2 a function that calls what nobody offers is refused at deploy, and invoke knows none', async () => {
  for (const [module, name] of [
    ['wasi_snapshot_preview1', 'fd_frobnicate'],
    ['env', 'system'],
    ['wasi_unstable', 'fd_write'],
  ]) {
    const wat = `(module (import "${module}" "${name}" (func $f)) (memory (export "memory") 1)
      (func (export "_start") (call $f)))`
    const refused = await refusal(platform.deploy('missing', await parse(wat)))
    assert.deepEqual([refused.code, refused.reason], ['INVALID', 'IMPORT_REFUSED'])
    assert.match(refused.message, RegExp(`${module}.*${name}|${name}.*${module}|${module}`))
    assert.equal((await refusal(platform.invoke('missing'))).code, 'NOT_FOUND')
  }
})

test('FN-3 no-node: where it may not run, and why', async () => {
  await platform.deploy('nowhere', 'probe/probe.wasm', { region: 'moon-1' })
  const ran = await platform.invoke('nowhere')
  assert.deepEqual(endOf(ran), failedFor('no-node'))
  assert.match(ran.error ?? '', /moon-1/)
  assert.deepEqual([ran.node_id, ran.trust_tier, ran.stdout], [null, null, ''])
})

/** CPU time of a child that only starts stays below this. */
const BUSY_MS = 500

/** The process of an agent in which a guest spins. */
const spinning = (of: Agent): Promise<Proc> =>
  until('a guest spins', () => {
    const innermost = of.children().filter((one) => descendants(one.pid).length === 0)
    return innermost.find((one) => one.state === 'R' && cpuMs(one.pid).own > BUSY_MS)
  })

test("FN-3 node-fault: the process of a guest that is killed from outside is not told as the guest's end", async () => {
  const ran = platform.probe('component', ['out', 'before', 'spin', 'forever'])
  await platform.untilRunning(1)
  process.kill((await spinning(agent)).pid, 'SIGKILL')
  const answer = await ran
  assert.deepEqual(endOf(answer), failedFor('node-fault'))
  assert.match(answer.error ?? '', /node-r1.*SIGKILL|SIGKILL/)
  await assertNormal('component')
})

test('FN-7 the history tells each end as the caller heard it', async () => {
  await platform.deploy('told', 'probe/probe.wasm', {
    cpuMillis: 200,
    memMb: MEM_MB,
    fuelMax: FUEL_MAX,
  })
  const heard = []
  for (const [steps, timeoutMs] of [
    ['exit 0'],
    ['exit 137'],
    ['trap divide'],
    ['starve'],
    ['spin forever'],
    ['sleep forever', 300],
  ] as const)
    heard.unshift(await platform.probe('told', steps.split(' '), timeoutMs ? { timeoutMs } : {}))
  const { invocations } = await until('the history is written', async () => {
    const page = await compute.functions.invocations({ orgId, name: 'told' })
    return page.invocations.length === heard.length ? page : undefined
  })
  assert.deepEqual(
    heard.map((one) => one.reason),
    ['timeout', 'fuel', 'memory', 'trap', 'exit', undefined],
  )
  assert.deepEqual(
    invocations.map((one) => [one.ok, one.exit_code, one.reason, one.error]),
    heard.map((one) => [one.ok, one.exitCode, one.reason ?? null, one.error ?? null]),
  )
})

test('FN-6 node-lost: told to the caller, or run once more elsewhere when the function is idempotent', async () => {
  // Over TCP the kernel tells at once that an agent is gone.
  const pair = { region: 'pair-1', flags: ['--transport', 'tls'] }
  const both = [
    await platform.startNode('node-r2', pair),
    await platform.startNode('node-r3', pair),
  ]
  const options = { region: 'pair-1', cpuMillis: 200 }
  await platform.deploy('once', 'probe/probe.wasm', options)
  await platform.deploy('again', 'probe/probe.wasm', { ...options, idempotent: true })
  /** The node of the function's only invocation. */
  const holder = async (name: string): Promise<Agent> => {
    await platform.untilRunning(1)
    for (const one of both) {
      const { id } = await platform.node(one.nodeId)
      const { work } = await compute.nodes.get({ orgId, id })
      if (work.some((slot) => slot.function === name)) return one
    }
    assert.fail(`no node has ${name}`)
  }

  const lost = platform.probe('once', ['spin', 'forever'])
  const first = await holder('once')
  const below = first.children()
  await first.program.kill()
  const answer = await lost
  assert.deepEqual(endOf(answer), failedFor('node-lost'))
  assert.match(answer.error ?? '', RegExp(first.nodeId))
  await until('its children are gone', () => below.every(isGone) || undefined, 2_000)
  assert.equal((await platform.probe('once', ['out', 'elsewhere'])).stdout, 'elsewhere\n')

  first.start()
  await platform.untilNode(first.nodeId, (node) => node.schedulable)
  const repeated = platform.probe('again', ['sleep', '2500', 'out', 'done'])
  const taken = await holder('again')
  await taken.program.kill()
  const done = await repeated
  assert.deepEqual([endOf(done), done.stdout], [exited(0), 'done\n'])
  assert.notEqual(done.node_id, taken.nodeId)
  assert.deepEqual(pids(), PIDS)
})

test('PL-4 after all of it, what is booked is what stands, and no process waits to be reaped', async () => {
  await platform.assertConsistent()
})

// How the jail holds runners in daily work: what dies when, what is given back, what a share means.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { systemClock as clock } from '#lib/clock.ts'
import { seededRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import { HOSTILE_LIMITS, withJail } from '#wasm/fixtures/hostile.ts'
import { prepared, preview1, run } from '#wasm/fixtures/run-wat.ts'
import type { Jail, Jailed } from '#wasm/jail/jail.ts'
import { innermost } from '#wasm/jail/below.ts'
import { CGROUP_LAYERS } from '#wasm/jail/layers.ts'
import { Runner } from '#wasm/runner.ts'

const node = process.execPath
const SPIN = preview1([], '(call $print (i32.const 0) (i32.const 1)) (loop $l (br $l))')
const HELLO = preview1([], '(call $print (i32.const 0) (i32.const 1))')

/** A dead process that its new parent has not collected yet is dead. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

async function killedParent(...without: string[]): Promise<number[]> {
  const script = fileURLToPath(new URL('../fixtures/spinning-parent.ts', import.meta.url))
  const parent = spawn(node, [script, ...without], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = (await once(parent.stdout, 'data')) as [Buffer]
  const pids = JSON.parse(line.toString()) as number[]
  assert.ok(pids.length >= 22 && pids.every(isAlive), 'bubblewrap and Node, eleven times')
  parent.kill('SIGKILL')
  await once(parent, 'exit')
  return pids
}

test('ND-19 FN-4 guests that spin and runners that idle die with their parent, killed with SIGKILL', async () => {
  const pids = await killedParent()
  await until('none outlives its parent', () => !pids.some(isAlive), 2000)
})

test('ND-19 FN-4 parent holds, and its hole is found without it: spinning guests outlive their parent', async () => {
  // Without cgroups too: another agent that starts meanwhile ends what a dead one left in its own.
  const pids = await killedParent('parent', ...CGROUP_LAYERS)
  try {
    await clock.sleep(2000)
    assert.ok(pids.some(isAlive))
  } finally {
    for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGKILL')
  }
  await until('the test cleans up', () => !pids.some(isAlive), 5000)
})

const started = async (jail: Jail, wat: string, cpuMillis: number): Promise<Runner> =>
  Runner.start({ artifact: await prepared(wat), memMb: 64, cpuMillis, node, clock, jail })

test('FN-4 a spinning guest that is throttled dies at its cap: within 100 ms at best, 250 at worst', async () => {
  await withJail({}, async (jail) => {
    const over: number[] = []
    for (let round = 0; round < 4; round++) {
      const runner = await started(jail, SPIN, 100)
      const began = clock.monotonic()
      const { outcome } = await run(runner, { timeoutMs: 300 })
      over.push(clock.monotonic() - began - 300)
      assert.equal(outcome.kind, 'timeout')
      await runner.close()
    }
    assert.ok(Math.min(...over) < 100, `${over.join(' ')} ms over the cap`)
    assert.ok(Math.max(...over) < 250, `${over.join(' ')} ms over the cap`)
  })
})

test('FN-4 a quota of a quarter of a core does not slow an invocation that needs less', async () => {
  await withJail({}, async (jail) => {
    const runner = await started(jail, HELLO, 250)
    const times: number[] = []
    for (let i = 0; i < 40; i++) {
      const { outcome } = await run(runner)
      assert.equal(outcome.kind, 'exited')
      times.push(outcome.durationMs)
      await clock.sleep(10)
    }
    await runner.close()
    const sorted = times.toSorted((a, b) => a - b)
    assert.ok((sorted[20] ?? Infinity) < 20, `a median of ${sorted[20]} ms`)
  })
})

test('FN-4 a child holds its three pipes, no variable, no capability, and its limits', async () => {
  await withJail({}, async (jail) => {
    const runner = await started(jail, SPIN, 1000)
    const pid = innermost(runner.pid ?? 0)
    const read = (file: string): string => readFileSync(`/proc/${pid}/${file}`, 'utf8')
    const fds = readdirSync(`/proc/${pid}/fd`)
      .map((fd) => `${fd} ${readlinkSync(`/proc/${pid}/fd/${fd}`)}`.replace(/\d+\]/, 'n]'))
      .filter((target) => !/ anon_inode:|^\d\d? pipe:/.test(target))
    assert.deepEqual(fds, ['0 socket:[n]', '1 socket:[n]', '2 socket:[n]'])
    // bubblewrap's own; nothing of ours.
    assert.equal(read('environ'), 'PWD=/\0')
    const status = read('status')
    assert.match(status, /^NoNewPrivs:\s+1$/m)
    assert.match(status, /^Seccomp:\s+2$/m)
    for (const set of ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'])
      assert.match(status, new RegExp(`^Cap${set}:\\s+0+$`, 'm'))
    assert.match(status, /^Uid:\s+64\d{3}\s+64\d{3}\s+64\d{3}\s+64\d{3}$/m)
    assert.match(status, /^Groups:\s*$/m)
    assert.match(read('limits'), /Max open files\s+32\s+32/)
    assert.match(read('limits'), /Max processes\s+64\s+64/)
    assert.match(read('cmdline'), /^\/node\0/)
    assert.ok(!existsSync(`/proc/${pid}/root/etc`))
    await runner.close()
  })
})

test('FN-4 MC-4 children that run at one time have different uids; a place is used again when it is empty', async () => {
  await withJail({ uids: { first: 64_200, last: 64_202 } }, async (jail) => {
    const args = ['-e', 'process.stdin.resume()']
    const begin = (): Jailed => jail.spawn({ node, args, limits: HOSTILE_LIMITS })
    const first: Jailed[] = []
    // The one that the jail was tried with may still be leaving.
    while (first.length < 3) first.push(await until('a place', begin))
    const uids = first.map(({ place }) => place.uid)
    assert.equal(new Set(uids).size, 3)
    assert.throws(begin, /every uid of the jail has a child/)
    const gone = once(first[1]!.process, 'close')
    first[1]!.kill()
    await gone
    const again = await until('the place is empty', begin)
    assert.equal(again.place.uid, uids[1])
    for (const jailed of [first[0]!, first[2]!, again]) {
      const closed = once(jailed.process, 'close')
      jailed.kill()
      await closed
    }
  })
})

test('FN-4 a jail that is closed leaves no cgroup', async () => {
  let folders: string[] = []
  await withJail({}, async (jail) => {
    const runner = await started(jail, HELLO, 1000)
    const cgroups = readFileSync(`/proc/${innermost(runner.pid ?? 0)}/cgroup`, 'utf8')
    assert.equal(cgroups.match(/clutch-jail-/g)?.length, 3)
    const args = ['-e', '0']
    const other = jail.spawn({ node, args, limits: HOSTILE_LIMITS })
    folders = other.place.cgroup?.joins.map((file) => dirname(dirname(file))) ?? []
    await once(other.process, 'close')
    assert.equal(folders.filter((folder) => existsSync(folder)).length, 3)
    await runner.close()
    await until('every place is empty', () => other.place.cgroup?.isEmpty())
  })
  assert.equal(folders.filter((folder) => existsSync(folder)).length, 0)
})

test('FN-4 a child that is killed while it starts leaves no process, at whatever moment', async () => {
  await withJail({}, async (jail) => {
    const random = seededRandom('killed-while-it-starts')
    const places = new Set<Jailed['place']>()
    for (let round = 0; round < 40; round++) {
      const jailed = jail.spawn({ node, args: ['-e', '0'], limits: HOSTILE_LIMITS })
      places.add(jailed.place)
      const closed = once(jailed.process, 'close')
      await clock.sleep(random.below(30))
      jailed.kill()
      await closed
    }
    for (const { cgroup } of places) await until('it is empty', () => cgroup?.isEmpty(), 2000)
  })
})

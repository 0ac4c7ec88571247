// Both versions of cgroups, written into folders that stand in for the kernel's.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { cgroupV1 } from '#wasm/jail/cgroup-v1.ts'
import { cgroupV2 } from '#wasm/jail/cgroup-v2.ts'
import { type Home, openSlot, quotaUs, removeCgroup } from '#wasm/jail/cgroup.ts'
import { findCgroups, hierarchies } from '#wasm/jail/find-cgroups.ts'
import { ownerOf } from '#wasm/jail/owner.ts'

const owner = ownerOf(process.pid)

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), 'clutch-cgroup-'))
  t.after(() => rmSync(made, { recursive: true, force: true }))
  return made
}

const read = (...path: string[]): string => readFileSync(join(...path), 'utf8')

test('FN-4 version 1: shares, quota and burst of CPU, memory without swap, threads', (t) => {
  const top = folder(t)
  const homes: Home[] = (['cpu', 'memory', 'pids'] as const).map((controller) => ({
    folder: join(top, controller),
    controllers: [controller],
    dialect: cgroupV1,
  }))
  const slot = openSlot(homes, '1')
  assert.equal(slot.joins.length, 3)
  slot.reset(68)
  assert.equal(read(top, 'cpu/1/cpu.cfs_quota_us'), '-1')
  assert.equal(read(top, 'memory/1/memory.limit_in_bytes'), '-1')
  assert.equal(read(top, 'pids/1/pids.max'), '68')
  slot.limit({ cpuMillis: 250, memMb: 128 })
  assert.equal(read(top, 'cpu/1/cpu.cfs_period_us'), '100000')
  assert.equal(read(top, 'cpu/1/cpu.cfs_quota_us'), '25000')
  assert.equal(read(top, 'cpu/1/cpu.cfs_burst_us'), '25000')
  assert.equal(read(top, 'cpu/1/cpu.shares'), '256')
  assert.equal(read(top, 'memory/1/memory.limit_in_bytes'), String(128 * 1024 * 1024))
  assert.equal(read(top, 'memory/1/memory.memsw.limit_in_bytes'), String(128 * 1024 * 1024))
  slot.lift()
  assert.equal(read(top, 'cpu/1/cpu.cfs_quota_us'), '-1')
  assert.equal(slot.oomKills(), 0)
  writeFileSync(
    join(top, 'memory/1/memory.oom_control'),
    'oom_kill_disable 0\nunder_oom 0\noom_kill 3\n',
  )
  assert.equal(slot.oomKills(), 3)
})

test('FN-4 version 2: weight, quota and burst of CPU, memory without swap, threads', (t) => {
  const top = folder(t)
  const slot = openSlot(
    [{ folder: top, controllers: ['cpu', 'memory', 'pids'], dialect: cgroupV2 }],
    '7',
  )
  assert.deepEqual(slot.joins, [join(top, '7/cgroup.procs')])
  slot.reset(68)
  assert.equal(read(top, '7/cpu.max'), 'max 100000')
  assert.equal(read(top, '7/memory.max'), 'max')
  assert.equal(read(top, '7/pids.max'), '68')
  slot.limit({ cpuMillis: 250 })
  assert.equal(read(top, '7/memory.max'), 'max', 'what is not named stays')
  slot.limit({ memMb: 128 })
  assert.equal(read(top, '7/cpu.max'), '25000 100000')
  assert.equal(read(top, '7/cpu.max.burst'), '25000')
  assert.equal(read(top, '7/cpu.weight'), '25')
  assert.equal(read(top, '7/memory.max'), String(128 * 1024 * 1024))
  assert.equal(read(top, '7/memory.swap.max'), '0')
  slot.lift()
  assert.equal(read(top, '7/cpu.max'), 'max 100000')
  writeFileSync(join(top, '7/memory.events'), 'low 0\nmax 9\noom 1\noom_kill 1\n')
  assert.equal(slot.oomKills(), 1)
})

test('FN-4 a place is empty, and holds a process, by what the kernel lists', (t) => {
  const top = folder(t)
  const slot = openSlot([{ folder: top, controllers: ['pids'], dialect: cgroupV2 }], '1')
  assert.ok(slot.isEmpty(), 'no list yet')
  writeFileSync(join(top, '1/cgroup.procs'), '41\n42\n')
  assert.ok(!slot.isEmpty())
  assert.ok(!slot.holds(42), 'no limit yet')
  slot.reset(10)
  assert.ok(slot.holds(42) && !slot.holds(4))
  writeFileSync(join(top, '1/cgroup.procs'), '')
  assert.ok(slot.isEmpty())
})

test('FN-4 controllers that are left out are not written', (t) => {
  const top = folder(t)
  const slot = openSlot([{ folder: top, controllers: ['memory'], dialect: cgroupV2 }], '1')
  slot.reset(10)
  slot.limit({ cpuMillis: 250, memMb: 64 })
  assert.ok(existsSync(join(top, '1/memory.max')) && !existsSync(join(top, '1/cpu.max')))
})

test('FN-4 a quota is a share of 100 ms, never under the least that the kernel takes', () => {
  assert.deepEqual([250, 1000, 16_000, 1].map(quotaUs), [25_000, 100_000, 1_600_000, 1_000])
})

test('FN-4 the hierarchies of a machine, and where this process is in them', () => {
  const mounts = [
    '31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755',
    '32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct',
    '35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory',
    '40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd',
    '41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw',
  ].join('\n')
  const own = ['9:name=systemd:/x', '4:memory:/docker/abc/y', '1:cpu,cpuacct:/', '0::/z:z'].join(
    '\n',
  )
  assert.deepEqual(hierarchies({ mounts, own }), [
    {
      folder: '/sys/fs/cgroup/cpu,cpuacct',
      top: '/sys/fs/cgroup/cpu,cpuacct',
      version: 1,
      controllers: ['cpu'],
    },
    {
      folder: '/sys/fs/cgroup/memory/y',
      top: '/sys/fs/cgroup/memory',
      version: 1,
      controllers: ['memory'],
    },
    {
      folder: '/sys/fs/cgroup/unified/z:z',
      top: '/sys/fs/cgroup/unified',
      version: 2,
      controllers: [],
    },
  ])
})

/** A stand-in for a version 2 hierarchy: what it offers is given as soon as it is written. */
function unified(t: TestContext, inside: string): { top: string; sources: object } {
  const top = folder(t)
  const base = join(top, inside)
  mkdirSync(base, { recursive: true })
  for (const place of new Set([top, base])) {
    writeFileSync(join(place, 'cgroup.controllers'), 'cpuset cpu memory pids')
    writeFileSync(join(place, 'cgroup.subtree_control'), 'cpu memory pids')
  }
  return {
    top,
    sources: { mounts: `41 31 0:38 / ${top} rw - cgroup2 cgroup2 rw`, own: `0::/${inside}`, owner },
  }
}

test('FN-4 version 2: a program that is alone in its cgroup divides it; root, else, the top', (t) => {
  const alone = unified(t, 'unit')
  writeFileSync(join(alone.top, 'unit/cgroup.procs'), `${process.pid}\n`)
  const [home] = findCgroups({ ...alone.sources, privileged: false } as never)
  assert.match(home?.folder ?? '', /\/unit\/clutch-jail-\d+-\d+-1$/)
  assert.deepEqual(home?.controllers, ['cpu', 'memory', 'pids'])
  const shared = unified(t, 'session')
  writeFileSync(join(shared.top, 'session/cgroup.procs'), `${process.pid}\n1\n`)
  assert.deepEqual(findCgroups({ ...shared.sources, privileged: false } as never), [])
  const [top] = findCgroups({ ...shared.sources, privileged: true } as never)
  assert.ok(top?.folder.startsWith(join(shared.top, 'clutch-jail-')))
})

test('FN-4 cgroups of a parent that is gone are removed at the next start; a second jail has its own', (t) => {
  const top = folder(t)
  const sources = {
    mounts: `32 31 0:29 / ${top} rw - cgroup cgroup rw,cpu`,
    own: '1:cpu:/',
    owner,
    privileged: true,
  }
  mkdirSync(join(top, 'clutch-jail-999999999-1-1/3'), { recursive: true })
  mkdirSync(join(top, 'clutch-jail-1-1-1'))
  const [first] = findCgroups(sources)
  const [second] = findCgroups(sources)
  assert.ok(!existsSync(join(top, 'clutch-jail-999999999-1-1')))
  assert.ok(!existsSync(join(top, 'clutch-jail-1-1-1')), 'the pid lives, but began another time')
  assert.ok(first && second && first.folder !== second.folder)
  removeCgroup(first.folder)
  assert.ok(!existsSync(first.folder) && existsSync(second.folder))
})

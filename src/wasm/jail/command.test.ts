import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Hold, jailedCommand } from '#wasm/jail/command.ts'
import { LAYERS, type Layer } from '#wasm/jail/layers.ts'

const hold = (changes: Partial<Hold> = {}): Hold => ({
  layers: new Set<Layer>(LAYERS),
  limits: { dataBytes: 1, stackBytes: 2, filesMax: 3, tasksMax: 4 },
  privileged: true,
  uid: 64_100,
  view: {
    bubblewrap: '/usr/bin/bwrap',
    libraries: [['/usr/lib/libc.so.6', '/lib/libc.so.6']],
    opened: [{ fd: 3, inside: '/node' }],
    filterFd: 4,
  },
  joins: ['/sys/fs/cgroup/cpu/x/cgroup.procs'],
  inherited: [],
  ...changes,
})

test('FN-4 capabilities are dropped only by who holds them', () => {
  assert.ok(jailedCommand('node', [], hold()).includes('--bounding-set=-all'))
  const ordinary = jailedCommand('node', [], hold({ privileged: false }))
  assert.ok(!ordinary.includes('--bounding-set=-all') && ordinary.includes('--no-new-privs'))
})

test('FN-4 a child joins its cgroups, is limited, loses its rights, and then enters its namespaces', () => {
  const command = jailedCommand('/opt/node', ['-e', '0'], hold())
  const places = ['/bin/sh', '/usr/bin/prlimit', '/usr/bin/setpriv', '/usr/bin/bwrap', '/node']
  const at = places.map((program) => command.indexOf(program))
  assert.deepEqual(
    at,
    at.toSorted((a, b) => a - b),
  )
  assert.ok(!at.includes(-1))
  assert.deepEqual(command.slice(-4), ['--', '/node', '-e', '0'])
  assert.ok(!command.includes('/opt/node'), 'the path of the host says nothing inside')
})

test('FN-4 threads are counted by uid only for a child that has one of its own', () => {
  assert.ok(jailedCommand('node', [], hold()).includes('--nproc=4'))
  const shared = jailedCommand('node', [], hold({ uid: undefined }))
  assert.ok(!shared.some((flag) => flag.startsWith('--nproc')))
})

test('FN-4 without bubblewrap and cgroups the program runs as it is, limited', () => {
  const bare = hold({ uid: undefined, view: undefined, joins: [] })
  assert.equal(jailedCommand('/opt/node', [], bare)[0], '/usr/bin/prlimit')
  assert.deepEqual(jailedCommand('/opt/node', ['-e', '0'], bare).slice(-3), [
    '/opt/node',
    '-e',
    '0',
  ])
})

test('FN-4 descriptors that this process was started with are closed before the child runs', () => {
  const command = jailedCommand('node', [], hold({ inherited: [9, 251] }))
  assert.equal(command[0], '/bin/bash')
  const at = command.indexOf('9')
  assert.deepEqual(command.slice(at - 1, at + 3), ['--', '9', '251', '--'])
})

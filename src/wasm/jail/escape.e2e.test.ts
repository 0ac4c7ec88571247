// The escape suite. A hostile program with all of Node and raw system calls runs inside the jail as if every check of
// the runner had failed: the whole jail must give it nothing. Then each layer is taken away, and what it alone held
// must be found: so the suite sees what it looks for. It runs as root, like the machines of CI.
import assert from 'node:assert/strict'
import { spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import dgram from 'node:dgram'
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { attack, type Found, NO_TARGETS, type Targets, withJail } from '#wasm/fixtures/hostile.ts'
import type { Jail, Jailed, Share } from '#wasm/jail/jail.ts'
import type { Layer } from '#wasm/jail/layers.ts'
import { innermost } from '#wasm/jail/below.ts'

const SECRET = 'planted-for-the-escape-suite'
let targets: Targets = NO_TARGETS
let folder = ''
let datagrams = 0
const closers: (() => void)[] = []

async function listening(server: net.Server, at: object): Promise<void> {
  server.listen(at)
  await once(server, 'listening')
  closers.push(() => server.close())
}

/** Another function's child: it waits. */
function sibling(jail: Jail): Jailed {
  const args = ['-e', `// ${SECRET}\nprocess.stdin.resume()`]
  const limits = { dataBytes: 2 ** 31, stackBytes: 2 ** 24, filesMax: 64, tasksMax: 40 }
  return jail.spawn({ node: process.execPath, args, limits })
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'clutch-escape-'))
  closers.push(() => rmSync(folder, { recursive: true }))
  // World-readable on the way, like a machine's own folders; what is inside is not.
  chmodSync(folder, 0o755)
  const dataDir = join(folder, 'clutch-noded')
  mkdirSync(join(dataDir, 'artifacts'), { recursive: true, mode: 0o700 })
  const open = join(folder, 'open')
  const journal = join(dataDir, 'journal.sqlite')
  const artifact = join(dataDir, 'artifacts', 'another-function')
  for (const file of [journal, artifact]) writeFileSync(file, SECRET, { mode: 0o600 })
  writeFileSync(open, SECRET)
  chmodSync(open, 0o666)
  const tcp = net.createServer((socket) => socket.end())
  await listening(tcp, { host: '127.0.0.1', port: 0 })
  const unixPath = join(folder, 'socket')
  await listening(
    net.createServer((socket) => socket.end()),
    { path: unixPath },
  )
  chmodSync(unixPath, 0o777)
  const abstractName = `clutch-escape-${process.pid}`
  await listening(
    net.createServer((socket) => socket.end()),
    { path: `\0${abstractName}` },
  )
  const udp = dgram.createSocket('udp4', () => void datagrams++)
  udp.bind(0, '127.0.0.1')
  await once(udp, 'listening')
  closers.push(() => udp.close())
  targets = {
    ...NO_TARGETS,
    secret: SECRET,
    secrets: {
      journal,
      artifact,
      open,
      'host root': `/proc/1/root${open}`,
      'parent root': `/proc/${process.pid}/root${open}`,
      'parent environment': `/proc/${process.pid}/environ`,
      'parent memory map': `/proc/${process.pid}/maps`,
    },
    writable: [
      open,
      dataDir,
      '/planted',
      '/tmp/clutch-planted',
      '/dev/shm/clutch-planted',
      '/node',
      '/proc/self/oom_score_adj',
      '/sys/fs/cgroup/cgroup.procs',
      '/sys/fs/cgroup/memory/cgroup.procs',
      '/sys/fs/cgroup/cpu/cgroup.procs',
    ],
    tcpPort: (tcp.address() as AddressInfo).port,
    udpPort: udp.address().port,
    unixPath,
    abstractName,
  }
})

after(() => {
  for (const close of closers) close()
})

test('FN-4 MC-4 the escape suite finds nothing in the whole jail', async () => {
  await withJail({}, async (jail) => {
    const other = sibling(jail)
    try {
      await once(other.process, 'spawn')
      const siblingPid = innermost(other.process.pid ?? 0)
      const { found, stderr } = await attack(jail, { ...targets, siblingPid })
      assert.ok(Object.keys(found).length > 60, stderr)
      const escaped = Object.entries(found).filter(([, what]) => what.startsWith('FOUND'))
      assert.deepEqual(escaped, [])
      assert.equal(datagrams, 0)
    } finally {
      other.kill()
      await once(other.process, 'close')
    }
  })
})

test('FN-4 what eats memory, threads or processors in the jail is stopped', async () => {
  await withJail({}, async (jail) => {
    const share = { memMb: 192, cpuMillis: 100 }
    const eaten = await attack(jail, targets, ['memory'], { memMb: 192 })
    assert.deepEqual([eaten.found, eaten.outOfMemory], [{}, true])
    const threads = await attack(jail, targets, ['threads'], { memMb: 1024 })
    // Node ends itself when a thread cannot be had.
    assert.deepEqual([threads.found, threads.outOfMemory], [{}, false])
    const spun = await attack(jail, targets, ['spin'], share)
    assert.doesNotMatch(spun.found['spin'] ?? 'FOUND nothing', /^FOUND/)
    assert.equal(spun.outOfMemory, false)
  })
})

/** A descriptor that the ordinary user's program is started with, far from the first ones. */
const STRAY_FD = 30

async function ordinaryUser(attempts: string[], without: Layer[]) {
  // The way to this checkout may be closed to others.
  const node = join(folder, 'node')
  if (!existsSync(node)) copyFileSync(process.execPath, node)
  const script = fileURLToPath(new URL('../fixtures/ordinary-user.ts', import.meta.url))
  const stray = openSync(join(folder, 'open'), 'r')
  const stdio: StdioOptions = ['ignore', 'pipe', 'inherit']
  for (let fd = 3; fd < STRAY_FD; fd++) stdio.push('ignore')
  const request = JSON.stringify({ node, targets, attempts, without })
  const child = spawn(process.execPath, [script, request], { stdio: [...stdio, stray] })
  closeSync(stray)
  return JSON.parse(await text(child.stdout ?? assert.fail())) as Found & { missing: string[] }
}

test('FN-4 MC-4 an ordinary user has the jail but for its uid and the cgroups, and the suite finds nothing', async () => {
  const report = await ordinaryUser([], [])
  assert.deepEqual(report.missing, ['cgroup-cpu', 'cgroup-memory', 'cgroup-pids', 'own-uid'])
  assert.ok(Object.keys(report.found).length > 60, report.stderr)
  const escaped = Object.entries(report.found).filter(([, what]) => what.startsWith('FOUND'))
  assert.deepEqual(escaped, [])
})

test('FN-4 MC-4 environment holds, and its hole is found without it: descriptors', async () => {
  const held = await ordinaryUser(['descriptors'], [])
  assert.equal(held.found['descriptors'], 'none', held.stderr)
  const open = await ordinaryUser(['descriptors'], ['environment'])
  assert.equal(open.found['descriptors'], `FOUND descriptors ${STRAY_FD}`)
})

/** A layer, what it alone holds once `also` is gone too, and the attempt that shows it. */
const HOLES: {
  layer: Layer
  also?: Layer[]
  attempt: string
  share?: Partial<Share>
}[] = [
  { layer: 'own-uid', also: ['files'], attempt: 'read journal' },
  { layer: 'own-uid', also: ['files'], attempt: 'read artifact' },
  { layer: 'files', attempt: 'read open' },
  { layer: 'files', attempt: 'rawOpen' },
  { layer: 'network', also: ['seccomp'], attempt: 'tcp' },
  { layer: 'network', also: ['seccomp'], attempt: 'abstract' },
  { layer: 'processes', also: ['own-uid', 'seccomp'], attempt: 'killParent' },
  { layer: 'processes', also: ['own-uid'], attempt: 'rawKillParent' },
  { layer: 'seccomp', attempt: 'socket' },
  { layer: 'seccomp', attempt: 'memfd' },
  { layer: 'privileges', also: ['own-uid', 'seccomp'], attempt: 'chroot' },
  { layer: 'environment', attempt: 'environment' },
  { layer: 'limits', attempt: 'openFiles' },
  { layer: 'cgroup-memory', attempt: 'memory', share: { memMb: 192 } },
  { layer: 'cgroup-cpu', attempt: 'spin', share: { cpuMillis: 100 } },
  { layer: 'cgroup-pids', also: ['seccomp', 'limits'], attempt: 'forks' },
  { layer: 'cgroup-pids', also: ['limits'], attempt: 'threads', share: { memMb: 1024 } },
]

/** What ends the child where a layer holds it. */
const DEADLY = ['memory', 'threads']

for (const { layer, also = [], attempt, share = {} } of HOLES)
  test(`FN-4 MC-4 ${layer} holds, and its hole is found without it: ${attempt}`, async () => {
    const found = (without: Layer[]): Promise<string> =>
      withJail({ without: new Set(without) }, async (jail) => {
        const report = await attack(jail, targets, [attempt], share)
        return report.found[attempt] ?? `it died: ${report.outOfMemory} ${report.stderr}`
      })
    const held = await found(also)
    assert.doesNotMatch(held, /^FOUND/)
    // It was tried: one that died of something else proves nothing, unless dying of it is what the layer does.
    if (!DEADLY.includes(attempt)) assert.doesNotMatch(held, /^it died/)
    assert.match(await found([...also, layer]), /^FOUND/)
  })

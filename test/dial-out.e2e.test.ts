// 000-03, 000-04, ND-3: a machine that nobody can dial. The node lives in a network namespace whose firewall drops every
// packet that comes in and is no reply, and all that goes out but one protocol to one port.
import { until } from '#lib/until.ts'
import assert from 'node:assert/strict'
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test, type TestContext } from 'node:test'
import { openFiles } from '#sim/bench/process-tree.ts'
import { startPlatform, type Platform } from '#test/platform.ts'

const NODED = join(import.meta.dirname, '../bin/clutch-noded')
const EXAMPLE = 'word-count/word-count.wasm'
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

const run = (command: string, ...args: string[]): string =>
  execFileSync(command, args, { encoding: 'utf8', env: { PATH } })

type Site = { namespace: string; engineHost: string; nodeHost: string }

/** A namespace with one wire to this machine. `number` tells the sites of this process apart. */
function site(t: TestContext, number: number): Site {
  const id = `${process.pid % 10_000}${number}`
  const namespace = `clutch${id}`
  const [here, there] = [`cl${id}a`, `cl${id}b`]
  const net = `10.213.${process.pid % 250}`
  const engineHost = `${net}.${4 * number + 1}`
  const nodeHost = `${net}.${4 * number + 2}`
  run('ip', 'netns', 'add', namespace)
  t.after(() => void run('ip', 'netns', 'del', namespace))
  run('ip', 'link', 'add', here, 'type', 'veth', 'peer', 'name', there, 'netns', namespace)
  run('ip', 'address', 'add', `${engineHost}/30`, 'dev', here)
  run('ip', 'link', 'set', here, 'up')
  run('ip', '-n', namespace, 'address', 'add', `${nodeHost}/30`, 'dev', there)
  run('ip', '-n', namespace, 'link', 'set', there, 'up')
  return { namespace, engineHost, nodeHost }
}

/** Nothing in but replies; nothing out but `protocol` to the engine's port. Counts what it drops. */
function firewall(namespace: string, protocol: 'udp' | 'tcp', port: number): void {
  const rules = `
    table inet clutch {
      chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related counter accept
        counter drop comment "inbound"
      }
      chain output {
        type filter hook output priority 0; policy drop;
        ${protocol} dport ${port} counter accept
        meta l4proto tcp counter drop comment "tcp"
        meta l4proto udp counter drop comment "udp"
      }
    }`
  execFileSync('ip', ['netns', 'exec', namespace, 'nft', '-f', '-'], {
    input: rules,
    env: { PATH },
  })
}

function dropped(namespace: string, comment: string): number {
  const rules = run('ip', 'netns', 'exec', namespace, 'nft', 'list', 'table', 'inet', 'clutch')
  const line = rules.split('\n').find((each) => each.includes(`"${comment}"`)) ?? ''
  return Number(/packets (\d+)/.exec(line)?.[1])
}

type FarNode = { process: ChildProcess; log(): string }

/** An agent in the namespace, ended with the test. */
function startFarNode(
  t: TestContext,
  at: Site,
  given: { server: string; nodeId: string; token: string },
): FarNode {
  const dataDir = mkdtempSync(join(tmpdir(), 'clutch-far-'))
  const tokenFile = `${dataDir}.token`
  writeFileSync(tokenFile, given.token, { mode: 0o600 })
  const flags = ['--server', given.server, '--node', given.nodeId, '--token-file', tokenFile]
  const agent = [NODED, ...flags, '--runtimes', 'wasm', '--data-dir', dataDir]
  const command = ['--pdeathsig', 'KILL', '--', 'ip', 'netns', 'exec', at.namespace, ...agent]
  const child = spawn('setpriv', command, {
    cwd: '/',
    env: { PATH, HOME: tmpdir() },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text))
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
    }
    rmSync(dataDir, { recursive: true, force: true })
    rmSync(tokenFile, { force: true })
  })
  return { process: child, log: () => said }
}

/** Whether anybody on this machine can open a TCP connection to the node. */
async function reachable(host: string): Promise<boolean> {
  const socket = connect({ host, port: 22 })
  socket.setTimeout(500)
  const event = await Promise.race(
    ['connect', 'timeout', 'error'].map((name) => once(socket, name).then(() => name)),
  ).catch(() => 'error')
  socket.destroy()
  return event === 'connect'
}

const INPUT = readFileSync(import.meta.filename)

async function countsItself(platform: Platform, name: string): Promise<void> {
  const answer = await platform.invoke(name, { stdinBase64: INPUT.toString('base64') })
  assert.equal(answer.ok, true, JSON.stringify(answer))
  assert.match(answer.stdout, new RegExp(`\\b${INPUT.length}\\b`))
}

const platform = await startPlatform({ after }, { settings: { 'session-host': '0.0.0.0' } })
const port = Number(platform.sessions.split(':')[1])
await platform.deploy('words', EXAMPLE)

const cases = [
  {
    number: 0,
    protocol: 'udp',
    transport: 'quic',
    said: /connected to \S+ over QUIC"/,
    other: 'tcp',
  },
  { number: 1, protocol: 'tcp', transport: 'tls', said: /over TCP \(QUIC: [^)]+\)/, other: 'udp' },
] as const

for (const { number, protocol, transport, said, other } of cases)
  test(`000-03 000-04 000-05 ND-3 with outbound ${protocol.toUpperCase()}/443 alone a node enrolls, runs a function and finds a restarted engine`, async (t) => {
    const at = site(t, number)
    firewall(at.namespace, protocol, port)
    const nodeId = `far-${protocol}`
    const { node, token } = await platform.enroll(nodeId)
    const far = startFarNode(t, at, { server: `${at.engineHost}:${port}`, nodeId, token })
    const schedulable = await platform
      .untilNode(nodeId, (one) => one.schedulable)
      .catch((error) => {
        throw new Error(`the agent said:\n${far.log()}`, { cause: error })
      })
    assert.equal(schedulable.session?.transport, transport)
    assert.match(far.log(), said)

    await countsItself(platform, 'words')
    assert.equal(await reachable(at.nodeHost), false)
    assert.ok(dropped(at.namespace, 'inbound') > 0, 'the firewall saw nothing to drop')

    const sockets = openFiles(far.process.pid ?? 0).filter((path) => path.startsWith('socket:'))
    assert.ok(sockets.length > 0)

    await platform.killEngine()
    await platform.startEngine()
    const back = await platform.untilNode(
      nodeId,
      (one) => one.schedulable && one.session?.epoch !== 1,
    )
    assert.equal(back.id, node.id)
    assert.equal(back.session?.transport, transport)
    await countsItself(platform, 'words')
    // What was tried in vain was dropped here, not answered.
    if (other === 'udp') assert.ok(dropped(at.namespace, 'udp') > 0)

    await platform.api.compute.nodes.revoke({ orgId: platform.orgId, id: node.id })
    await until('the agent ends', () => (far.process.exitCode === 78 ? true : undefined))
  })

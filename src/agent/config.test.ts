import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AppError } from '#lib/error.ts'
import { parseAgentConfig, type AgentConfig } from '#agent/config.ts'

const PLACE = { home: '/home/someone', uid: 1000 }
const GOOD = ['--server', 'engine.example:7443', '--node', 'node-a1', '--runtimes', 'wasm']

const parse = (argv: string[], env: Record<string, string> = {}): AgentConfig =>
  parseAgentConfig(argv, env, PLACE)

function faultOf(argv: string[], env: Record<string, string> = {}): string {
  try {
    parse(argv, env)
  } catch (error) {
    assert.ok(error instanceof AppError)
    assert.equal(error.details.reason, 'CONFIG')
    return error.message
  }
  assert.fail('it was not refused')
}

test('000-22 server, node, token and runtimes start an agent', () => {
  const config = parse([...GOOD, '--token', 'clt_n_x'])
  assert.deepEqual(config.server, { host: 'engine.example', port: 7443 })
  assert.equal(config.nodeId, 'node-a1')
  assert.deepEqual(config.token, { text: 'clt_n_x' })
  assert.deepEqual(config.runtimes, ['wasm'])
  assert.equal(config.dataDir, '/home/someone/.local/state/clutch-noded')
  assert.equal(
    parseAgentConfig(GOOD, {}, { home: '/root', uid: 0 }).dataDir,
    '/var/lib/clutch-noded',
  )
})

test('000-22 each missing flag is named, with what it is, all in one message', () => {
  const message = faultOf([])
  for (const flag of ['--server', '--node', '--runtimes'])
    assert.match(message, new RegExp(`^${flag} is missing: .+`, 'm'))
})

test('ND-3 a token comes from a file or the environment as well; flags win over the environment', () => {
  assert.deepEqual(parse([...GOOD, '--token-file', '/run/t']).token, { file: '/run/t' })
  assert.deepEqual(parse(GOOD, { CLUTCH_TOKEN: 'clt_n_e' }).token, { text: 'clt_n_e' })
  assert.deepEqual(parse(GOOD, { CLUTCH_TOKEN_FILE: '/run/e' }).token, { file: '/run/e' })
  assert.equal(parse(GOOD).token, undefined)
  const env = {
    CLUTCH_SERVER: 'a:1',
    CLUTCH_NODE: 'n',
    CLUTCH_RUNTIMES: 'wasm',
    CLUTCH_DATA_DIR: '/d',
  }
  assert.deepEqual(parse([], env).server, { host: 'a', port: 1 })
  assert.equal(parse([], env).dataDir, '/d')
  assert.deepEqual(parse(['--server', 'b:2'], env).server, { host: 'b', port: 2 })
})

test('ND-3 a server is HOST, HOST:PORT or [V6]:PORT; the port is 443 unless given', () => {
  const server = (text: string): AgentConfig['server'] => parse([...GOOD, '--server', text]).server
  assert.deepEqual(server('engine.example'), { host: 'engine.example', port: 443 })
  assert.deepEqual(server('10.0.0.7:7443'), { host: '10.0.0.7', port: 7443 })
  assert.deepEqual(server('[2001:db8::7]:443'), { host: '2001:db8::7', port: 443 })
  for (const bad of ['a:0', 'a:65536', 'a:b', '2001:db8::7', 'https://a', ':443'])
    assert.match(faultOf([...GOOD, '--server', bad]), /is not HOST:PORT/, bad)
})

test('000-13 D35 a region is no business of the agent', () => {
  assert.match(faultOf([...GOOD, '--region', 'blr1']), /the operator sets the region/)
})

test('000-25 contributed hardware offers no machines without the jailer, and says how to', () => {
  const message = faultOf([...GOOD, '--runtimes', 'wasm,microvm', '--community'])
  assert.match(message, /--community refuses to offer microvm.*--jailer/)
  assert.equal(parse([...GOOD, '--community']).community, true)
  assert.deepEqual(parse([...GOOD, '--community']).runtimes, ['wasm'])
})

test('000-24 runtimes that this version cannot run, and such that are none, are refused plainly', () => {
  assert.match(
    faultOf([...GOOD, '--runtimes', 'microvm']),
    /microvm: this version .* offers wasm only/,
  )
  assert.match(faultOf([...GOOD, '--runtimes', 'wasm,jvm']), /'jvm' is no runtime: there are wasm/)
})

test('ND-29 limits are whole numbers above 0; unknown flags are refused', () => {
  const config = parse([...GOOD, '--max-cpu-millis', '500', '--max-mem-mb', '256'])
  assert.deepEqual([config.maxCpuMillis, config.maxMemMb], [500, 256])
  for (const bad of ['0', '-1', '1.5', 'much'])
    assert.match(faultOf([...GOOD, `--max-mem-mb=${bad}`]), /whole number above 0/, bad)
  assert.match(faultOf([...GOOD, '--tokn', 'x']), /--tokn/)
  assert.match(faultOf([...GOOD, '--node', 'Node_A']), /is no nodeId/)
})

test('MC-4 the uids of guests are a range above those of people and the system', () => {
  assert.deepEqual(parse(GOOD).jailUids, { first: 64_100, last: 64_999 })
  assert.deepEqual(parse([...GOOD, '--jail-uids', '70000-70009']).jailUids, {
    first: 70_000,
    last: 70_009,
  })
  const env = { CLUTCH_JAIL_UIDS: '70000-70001' }
  assert.deepEqual(parse(GOOD, env).jailUids, { first: 70_000, last: 70_001 })
  for (const wrong of ['0-10', '70009-70000', '70000', 'a-b', '70000-', '70000-4294967295'])
    assert.match(faultOf([...GOOD, '--jail-uids', wrong]), /is no range of user ids from 1000 up/)
})

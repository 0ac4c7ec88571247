// The bytes of every message, by sample. A change here is a change of the protocol: it needs a version.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { suite, test } from 'node:test'
import { z } from 'zod'
import { AppError } from '#lib/error.ts'
import { decode, decodeAs, encode } from '#protocol/codec.ts'
import * as messages from '#protocol/messages.ts'

const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, 'golden/messages.json'), 'utf8'),
) as Record<string, string>

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text))
const manifest = { cpuMillis: 4000, memMb: 8192, runtimes: ['wasm', 'microvm'] }
const node = { id: 'node_1', orgId: 'org_1', trustTier: 'secure' }
const result = { durationMs: 12.5, memPeakMb: 3, stdoutTruncated: false, stderrTruncated: true }
const m = messages

/** name → the schema it is read with, and the message. */
const samples: Record<string, [z.ZodType, Record<string, unknown>]> = {
  hello: [m.Hello, { t: 'hello', versions: [1], statement: bytes('statement') }],
  'register (first)': [
    m.Opening,
    {
      t: 'register',
      version: 1,
      agentVersion: '0.1.0',
      nodeId: 'node-a1',
      token: 'clt_n_secret',
      identityGeneration: 0,
      manifest,
      community: false,
      jailer: true,
      epochSeen: 0,
      generationSeen: 0,
    },
  ],
  'register (again)': [
    m.Opening,
    {
      t: 'register',
      version: 1,
      agentVersion: '0.1.0',
      nodeId: 'node-a1',
      orgId: 'org_1',
      certificate: bytes('der'),
      identityGeneration: 2,
      manifest,
      community: true,
      jailer: false,
      epochSeen: 7,
      generationSeen: 300,
    },
  ],
  welcome: [
    m.OpeningAnswer,
    {
      t: 'welcome',
      epoch: 8,
      engineId: 'eng_1',
      heartbeatMs: 10_000,
      certificate: bytes('der'),
      fleetRoot: bytes('root'),
      identityGeneration: 2,
      node,
      desired: { generation: 301 },
    },
  ],
  refused: [
    m.OpeningAnswer,
    { t: 'refused', reason: 'KEY_MISMATCH', message: 'another machine', retry: false },
  ],
  join: [m.Opening, { t: 'join', version: 1, ticket: bytes('ticket'), epoch: 8 }],
  joined: [m.OpeningAnswer, { t: 'joined' }],
  heartbeat: [m.FromNode, { t: 'heartbeat', seq: 1 }],
  observed: [m.FromNode, { t: 'observed', generation: 301 }],
  'command-result': [m.FromNode, { t: 'command-result', id: 'cmd_1', ok: true, output: 'fine' }],
  leaving: [m.FromNode, { t: 'leaving' }],
  'heartbeat-ack': [m.FromEngine, { t: 'heartbeat-ack', seq: 1, heartbeatMs: 10_000 }],
  desired: [m.FromEngine, { t: 'desired', generation: 301 }],
  command: [m.FromEngine, { t: 'command', id: 'cmd_1', kind: 'diag.wasm', deadlineMs: 60_000 }],
  cancel: [m.FromEngine, { t: 'cancel', id: 'cmd_1' }],
  renew: [m.FromEngine, { t: 'renew', certificate: bytes('der') }],
  open: [m.FromEngine, { t: 'open', ticket: bytes('ticket') }],
  goodbye: [
    m.FromEngine,
    { t: 'goodbye', reason: 'ENGINE_STOPS', message: 'back soon', spreadMs: 5000, retry: true },
  ],
  'stream invoke': [
    m.StreamHeader,
    {
      t: 'invoke',
      id: 'inv_1',
      functionId: 'fn_1',
      artifact: { sha256: 'ab'.repeat(32), bytes: 70_000 },
      memMb: 64,
      cpuMillis: 1000,
      timeoutMs: 30_000,
      args: ['--fast', 'é'],
      env: [['NAME', 'value']],
    },
  ],
  'stream invoke whole': [
    m.StreamHeader,
    {
      t: 'invoke',
      id: 'inv_2',
      functionId: 'fn_1',
      artifact: { sha256: 'ab'.repeat(32), bytes: 70_000 },
      memMb: 64,
      cpuMillis: 250,
      timeoutMs: 30_000,
      fuelMax: 1_000_000,
      stdout: 'whole',
      stdin: bytes('line\n'),
      args: [],
      env: [],
    },
  ],
  'to artifact': [m.ToInvocation, { t: 'artifact', bytes: bytes('\0asm') }],
  'to stdin': [m.ToInvocation, { t: 'stdin', bytes: bytes('line\n') }],
  'to stdin-end': [m.ToInvocation, { t: 'stdin-end' }],
  'from artifact': [m.FromInvocation, { t: 'artifact', have: false }],
  'from stdout': [m.FromInvocation, { t: 'stdout', bytes: bytes('out') }],
  'from stderr': [m.FromInvocation, { t: 'stderr', bytes: bytes('err') }],
  'result exited': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'exited', exitCode: 0 }, ...result },
  ],
  'result trap': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'trap', message: 'unreachable' }, ...result, memPeakMb: null },
  ],
  'result memory': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'memory', message: '64 MiB' }, ...result },
  ],
  'result timeout': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'timeout', message: '30 s' }, ...result },
  ],
  'result fuel': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'fuel', message: '1000 units' }, ...result, fuelUsed: 1000 },
  ],
  'result cancelled': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'cancelled' }, ...result },
  ],
  'result fault': [
    m.FromInvocation,
    { t: 'result', outcome: { kind: 'fault', message: 'no child' }, ...result },
  ],
}

suite('messages', () => {
  for (const [name, [schema, message]] of Object.entries(samples))
    test(`ND-3 ${name} has the bytes it always had, and is read back`, () => {
      assert.equal(encode(message).toString('hex'), golden[name], `the golden bytes of '${name}'`)
      assert.deepEqual(decodeAs(schema, encode(message), name), message)
      const newer = { ...message, addedByANewerVersion: { deep: [1, 2] } }
      assert.deepEqual(decodeAs(schema, encode(newer), name), message, 'unknown keys are ignored')
    })

  test('ND-3 every golden message has a sample', () => {
    assert.deepEqual(Object.keys(golden).toSorted(), Object.keys(samples).toSorted())
  })

  test('ND-3 every message there is has a sample', () => {
    for (const [name, schema] of Object.entries(messages)) {
      if (!(schema instanceof z.ZodDiscriminatedUnion)) continue
      const key = schema.def.discriminator
      const said = Object.values(samples).map(([, message]) => message)
      const seen = new Set(
        name === 'Outcome'
          ? said.map((message) => (message.outcome as { kind?: string } | undefined)?.kind)
          : said
              .filter((message) => schema.safeParse(message).success)
              .map((message) => message[key]),
      )
      for (const option of schema.options) {
        const literal = (option as z.ZodObject).shape[key] as z.ZodLiteral
        assert.ok(
          seen.has(literal.value as string),
          `${name}: no sample of '${String(literal.value)}'`,
        )
      }
    }
  })

  test('ND-3 a message with a field left out or of another type is refused by its name', () => {
    for (const [name, [schema, message]] of Object.entries(samples))
      for (const field of Object.keys(message)) {
        const { [field]: _, ...without } = message
        for (const broken of [without, { ...message, [field]: { odd: true } }])
          try {
            const read = decodeAs(schema, encode(broken), name)
            assert.ok(
              ['token', 'orgId', 'certificate', 'fuelUsed', 'fuelMax', 'stdout', 'stdin'].includes(
                field,
              ),
              `${name}.${field}: ${JSON.stringify(read)}`,
            )
          } catch (error) {
            if (!(error instanceof AppError)) throw error
            assert.equal(error.details.reason, 'MESSAGE_MALFORMED')
          }
      }
  })

  test('ND-3 each message cut short anywhere is the typed refusal', () => {
    for (const hex of Object.values(golden)) {
      const whole = Buffer.from(hex, 'hex')
      for (let length = 0; length < whole.length; length++)
        assert.throws(() => decode(whole.subarray(0, length)), AppError)
    }
  })
})

// The bytes of everything else that is sent or kept: frames, greeting, lengths, statement, token, identity, certificate.
import assert from 'node:assert/strict'
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import { issueCertificate, parseCertificate } from '#protocol/certificate.ts'
import { mintToken, parseToken } from '#protocol/enroll-token.ts'
import { FRAME, FrameReader, HEADER_BYTES, PAYLOAD_MAX, writeHeader } from '#protocol/frame.ts'
import { frame } from '#protocol/framed.ts'
import { createIdentity } from '#protocol/identity.ts'
import { GREETING } from '#protocol/pipe.ts'
import { signStatement, verifyStatement } from '#protocol/statement.ts'

const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, 'golden/wire.json'), 'utf8'),
) as Record<string, string>

const NOW = Date.UTC(2026, 10, 30, 12)
const root = await createIdentity(seededRandom('golden root'))
const node = await createIdentity(seededRandom('golden node'))
const header = (type: number, value: number, id: number): string => {
  const bytes = Buffer.alloc(HEADER_BYTES)
  writeHeader(bytes, 0, { type, value, id })
  return bytes.toString('hex')
}
const dates = { notBefore: NOW, notAfter: NOW + 3_600_000 }
const statement = signStatement(root, { engineKey: node.publicKey, engineId: 'eng_1', ...dates })
const { token } = mintToken('node', root.publicKey, seededRandom('golden token'))
const certificate = await issueCertificate({
  authority: root,
  publicKey: node.publicKey,
  orgId: 'org_1',
  nodeId: 'node_1',
  generation: 2,
  now: NOW,
  random: seededRandom('golden serial'),
})

const wire: Record<string, string> = {
  greeting: GREETING.toString('hex'),
  'frame open bulk': header(FRAME.open, 0, 1),
  'frame open small': header(FRAME.open, 1, 2),
  'frame data': header(FRAME.data, PAYLOAD_MAX, 1),
  'frame credit': header(FRAME.credit, 131_072, 0),
  'frame fin': header(FRAME.fin, 0, 0x01020304),
  'frame reset': header(FRAME.reset, 2, 0xffffffff),
  'frame ping': header(FRAME.ping, 0, 9),
  'frame pong': header(FRAME.pong, 0, 9),
  message: frame({ t: 'joined' }, 100).toString('hex'),
  'root key': root.publicKey,
  'node key': node.publicKey,
  'node libp2p key': Buffer.from(node.libp2pKey).toString('hex'),
  'node self-signed certificate': new X509Certificate(node.certificatePem).raw.toString('hex'),
  statement: statement.toString('hex'),
  token: Buffer.from(token).toString('hex'),
  'node certificate': certificate.der.toString('hex'),
}

suite('golden bytes', () => {
  for (const [name, bytes] of Object.entries(wire))
    test(`ND-3 ${name}`, () => assert.equal(bytes, golden[name]))

  test('ND-3 nothing golden is left unproven', () => {
    assert.deepEqual(Object.keys(golden), Object.keys(wire))
  })

  test('ND-2 a statement, a token and a certificate of long ago are still read', () => {
    const old = (name: string): Buffer => Buffer.from(golden[name] ?? '', 'hex')
    const expected = { root: { publicKey: root.publicKey }, peer: node.publicKey, now: NOW }
    assert.equal(verifyStatement(old('statement'), expected).engineId, 'eng_1')
    assert.equal(parseToken(old('token').toString()).kind, 'node')
    assert.equal(parseCertificate(old('node certificate')).generation, 2)
  })
})

suite('frame reader', () => {
  type Seen = [number, number, number] | [number, string]
  const read = (bytes: Buffer, cuts: number[]): Seen[] => {
    const seen: Seen[] = []
    const reader = new FrameReader({
      header: (type, value, id) => void seen.push([type, value, id]),
      payload: (id, piece) => {
        const last = seen.at(-1)
        const text = piece.toString('hex')
        if (last?.length === 2) last[1] += text
        else seen.push([id, text])
      },
    })
    let at = 0
    for (const cut of cuts) {
      reader.push(bytes.subarray(at, at + cut))
      at += cut
    }
    reader.push(bytes.subarray(at))
    return seen
  }
  const frames = fc.array(
    fc.record({
      type: fc.integer({ min: 1, max: 7 }),
      value: fc.nat(2 ** 24 - 1),
      id: fc.nat(2 ** 32 - 1),
      payload: fc.uint8Array({ minLength: 1, maxLength: 50 }),
    }),
    { maxLength: 20 },
  )
  const cuts = fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 40 })

  test('ND-3 frames are read the same in any cutting', () => {
    fc.assert(
      fc.property(frames, cuts, (list, where) => {
        const expected: Seen[] = []
        const bytes = list.map(({ type, value, id, payload }) => {
          const size = type === FRAME.data ? payload.length : value
          expected.push([type, size, id])
          const head = Buffer.from(header(type, size, id), 'hex')
          if (type !== FRAME.data) return head
          expected.push([id, Buffer.from(payload).toString('hex')])
          return Buffer.concat([head, payload])
        })
        assert.deepEqual(read(Buffer.concat(bytes), where), expected)
      }),
    )
  })

  test('ND-3 any bytes in any cutting: frames or the typed refusal', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), cuts, (bytes, where) => {
        try {
          read(Buffer.from(bytes), where)
        } catch (error) {
          assert.ok(error instanceof AppError && error.details.reason === 'PROTOCOL')
        }
      }),
      { numRuns: 1000 },
    )
  })
})

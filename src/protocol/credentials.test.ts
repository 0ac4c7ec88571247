// The things a peer shows: identity, statement, enroll token, certificate.
import assert from 'node:assert/strict'
import { X509Certificate, generateKeyPairSync } from 'node:crypto'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { CERTIFICATE_MS } from '#core/node/limits.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import { seededRandom } from '#lib/random.ts'
import {
  issueCertificate,
  parseCertificate,
  verifyCertificate,
  type IssueRequest,
} from '#protocol/certificate.ts'
import { encode } from '#protocol/codec.ts'
import { TOKEN_PATTERN, hashToken, mintToken, parseToken } from '#protocol/enroll-token.ts'
import {
  createIdentity,
  fingerprintOf,
  loadIdentity,
  publicKeyOfCertificate,
  publicKeyOfPeerId,
  verifySignature,
} from '#protocol/identity.ts'
import { STATEMENT_SKEW_MS, signStatement, verifyStatement } from '#protocol/statement.ts'

const random = seededRandom('credentials')
const root = await createIdentity(random)
const engine = await createIdentity(random)
const node = await createIdentity(random)
const other = await createIdentity(random)
const NOW = Date.UTC(2026, 10, 30, 12)
const HOUR = 3_600_000

const refusedAs =
  (reason: string, code = 'UNAUTHENTICATED') =>
  (error: unknown): boolean => {
    assert.ok(error instanceof AppError, String(error))
    assert.equal(error.details.reason, reason)
    assert.equal(error.code, code)
    return true
  }

suite('identity', () => {
  test('ND-4 an identity survives its key file, certificate and all', async () => {
    const again = await loadIdentity(node.privateKeyPem)
    assert.deepEqual({ ...again, sign: 0 }, { ...node, sign: 0 })
    assert.equal(publicKeyOfCertificate(new X509Certificate(node.certificatePem)), node.publicKey)
    assert.equal(
      new X509Certificate(node.certificatePem).checkIssued(
        new X509Certificate(node.certificatePem),
      ),
      true,
    )
  })

  test('ND-4 the same chance gives the same key, another another', async () => {
    assert.equal(
      (await createIdentity(seededRandom(1))).publicKey,
      (await createIdentity(seededRandom(1))).publicKey,
    )
    assert.notEqual(
      (await createIdentity(seededRandom(2))).publicKey,
      (await createIdentity(seededRandom(1))).publicKey,
    )
  })

  test('ND-4 a signature holds for its bytes and its key', () => {
    const bytes = Buffer.from('what was signed')
    const signature = node.sign(bytes)
    assert.ok(verifySignature(node.publicKey, bytes, signature))
    assert.ok(!verifySignature(other.publicKey, bytes, signature))
    assert.ok(!verifySignature(node.publicKey, Buffer.from('another'), signature))
    assert.ok(!verifySignature(node.publicKey, bytes, signature.subarray(1)))
    assert.ok(!verifySignature('no key', bytes, signature))
  })

  test('ND-4 a key file that holds anything else is refused, and not quoted', async () => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({
      type: 'pkcs8',
      format: 'pem',
    })
    const refused = refusedAs('KEY_MALFORMED', 'INVALID')
    for (const text of ['', 'hunter2', rsa.toString(), node.certificatePem])
      await assert.rejects(
        loadIdentity(text),
        (error) => refused(error) && !String(error).includes('hunter2'),
      )
  })

  test('ND-4 a libp2p peer id gives the key; any other text gives none', () => {
    const known = '12D3KooWPuHtvgxxmffTZTX8LyNA3Z5uvFNYhPHcdKhhRS1gQ8vX'
    assert.match(publicKeyOfPeerId(known) ?? '', /^[0-9a-f]{64}$/)
    for (const text of [
      '',
      '0OIl',
      known.slice(1),
      'QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N',
      'z'.repeat(100_000),
    ])
      assert.equal(publicKeyOfPeerId(text), undefined)
    fc.assert(fc.property(fc.string(), (text) => publicKeyOfPeerId(text) === undefined))
  })
})

suite('statement', () => {
  const said = {
    engineKey: engine.publicKey,
    engineId: 'eng_1',
    notBefore: NOW,
    notAfter: NOW + HOUR,
  }
  const bytes = signStatement(root, said)
  const expected = { root: { publicKey: root.publicKey }, peer: engine.publicKey, now: NOW }

  test('ND-2 a statement of the pinned root for this key is accepted, by key and by fingerprint', () => {
    const got = verifyStatement(bytes, expected)
    assert.deepEqual(got, { v: 1, ...said, rootKey: root.publicKey })
    const fingerprint = fingerprintOf(root.publicKey, 16)
    assert.equal(verifyStatement(bytes, { ...expected, root: { fingerprint } }).engineId, 'eng_1')
  })

  test('ND-2 a second engine, or one whose own key was rotated, is accepted', () => {
    const rotated = signStatement(root, { ...said, engineKey: other.publicKey })
    assert.equal(
      verifyStatement(rotated, { ...expected, peer: other.publicKey }).engineKey,
      other.publicKey,
    )
  })

  test('ND-2 every other statement is refused, with the reason', () => {
    const forged = encode([
      Buffer.from(root.publicKey, 'hex'),
      encode({ v: 1, ...said }),
      other.sign(encode({ v: 1, ...said })),
    ])
    const bare = encode([
      Buffer.from(root.publicKey, 'hex'),
      encode({ v: 1, ...said }),
      root.sign(encode({ v: 1, ...said })),
    ])
    const cases: [string, Uint8Array, Partial<typeof expected>][] = [
      ['STATEMENT_WRONG_ROOT', signStatement(other, said), {}],
      ['STATEMENT_BAD_SIGNATURE', forged, {}],
      ['STATEMENT_BAD_SIGNATURE', bare, {}], // without the domain line
      ['STATEMENT_OTHER_KEY', bytes, { peer: other.publicKey }],
      ['STATEMENT_NOT_YET_VALID', bytes, { now: NOW - STATEMENT_SKEW_MS - 1 }],
      ['STATEMENT_EXPIRED', bytes, { now: NOW + HOUR + STATEMENT_SKEW_MS + 1 }],
      ['STATEMENT_MALFORMED', bytes.subarray(1), {}],
      ['STATEMENT_MALFORMED', Buffer.alloc(5000), {}],
      ['STATEMENT_MALFORMED', signStatement(root, { ...said, engineKey: 'short' }), {}],
    ]
    for (const [reason, shown, change] of cases)
      assert.throws(() => verifyStatement(shown, { ...expected, ...change }), refusedAs(reason))
  })

  test('ND-2 a fingerprint too short to pin anything pins nothing', () => {
    for (const fingerprint of ['', fingerprintOf(root.publicKey, 8)])
      assert.throws(
        () => verifyStatement(bytes, { ...expected, root: { fingerprint } }),
        refusedAs('STATEMENT_WRONG_ROOT'),
      )
  })

  test('ND-3 any bytes, and any change of one byte, are refused with a reason', () => {
    const refused = (shown: Uint8Array): void =>
      assert.throws(
        () => verifyStatement(shown, expected),
        (error) =>
          error instanceof AppError && String(error.details.reason).startsWith('STATEMENT_'),
      )
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), refused))
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
        const changed = Buffer.from(bytes)
        changed[at] = (changed[at] ?? 0) ^ change
        refused(changed)
      }),
    )
  })
})

suite('enroll token', () => {
  test('ND-2 a token carries its fleet, and scanners can find it', () => {
    const { token, hash } = mintToken('node', root.publicKey, random)
    assert.match(token, /^clt_n_/)
    assert.match(`a line with ${token} in it`, TOKEN_PATTERN)
    assert.deepEqual(parseToken(token), {
      kind: 'node',
      fingerprint: fingerprintOf(root.publicKey, 16),
    })
    assert.equal(hash, sha256Hex(token))
    assert.equal(hash, hashToken(token))
    assert.notEqual(mintToken('node', root.publicKey, random).token, token)
  })

  test('ND-6 a join token is of another kind, and neither can pass for the other', () => {
    const { token } = mintToken('join', root.publicKey, random)
    assert.equal(parseToken(token).kind, 'join')
    assert.throws(
      () => parseToken(token.replace('clt_j_', 'clt_n_')),
      refusedAs('TOKEN_MALFORMED', 'INVALID'),
    )
  })

  test('ND-2 every typo is found before a dial, and the token is not in the message', () => {
    const { token } = mintToken('node', root.publicKey, random)
    const refused = (text: string): void =>
      assert.throws(
        () => parseToken(text),
        (error) => {
          refusedAs('TOKEN_MALFORMED', 'INVALID')(error)
          const message = (error as Error).message
          assert.ok(!message.includes(text.slice(6, 26)) || text.length < 26, message)
          assert.ok(
            !JSON.stringify((error as AppError).details).includes(text.slice(6, 26)) ||
              text.length < 26,
          )
          return true
        },
      )
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
    for (let at = 0; at < token.length; at++)
      for (const letter of ['A', 'z', '0', '_', '!', ' ', letters[at % 64] as string])
        if (letter !== token[at]) refused(token.slice(0, at) + letter + token.slice(at + 1))
    for (let at = 0; at + 1 < token.length; at++) {
      const swapped = token.slice(0, at) + token[at + 1] + token[at] + token.slice(at + 2)
      if (swapped !== token) refused(swapped)
      refused(token.slice(0, at))
    }
    refused(`${token}A`)
    refused(token.toUpperCase())
  })

  test('ND-2 the refusal says what is wrong', () => {
    const { token } = mintToken('node', root.publicKey, random)
    assert.throws(() => parseToken('hello'), /does not begin with clt_n_ or clt_j_/)
    assert.throws(() => parseToken(token.slice(0, -1)), /it has 76 characters, not 77/)
    assert.throws(
      () => parseToken(token.slice(0, 10) + '*' + token.slice(11)),
      /character 11 is not a letter/,
    )
    const wrong = token.slice(0, 10) + (token[10] === 'A' ? 'B' : 'A') + token.slice(11)
    assert.throws(() => parseToken(wrong), /checksum/)
  })

  test('ND-3 any text is refused with the typed refusal', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((s) => `clt_n_${s}`),
          fc.string({ minLength: 71, maxLength: 71 }).map((s) => `clt_j_${s}`),
        ),
        (text) => {
          assert.throws(() => parseToken(text), refusedAs('TOKEN_MALFORMED', 'INVALID'))
        },
      ),
    )
  })
})

suite('certificate', () => {
  const request: IssueRequest = {
    authority: root,
    publicKey: node.publicKey,
    orgId: 'org_7',
    nodeId: 'node_01jd',
    generation: 3,
    now: NOW,
    random: seededRandom('serial'),
  }
  const expected = {
    authorities: [other.publicKey, root.publicKey],
    peer: node.publicKey,
    now: NOW,
  }

  test('ND-5 a certificate says org, node, generation and key for 24 hours', async () => {
    const { der, pem, notAfter } = await issueCertificate(request)
    assert.equal(notAfter, NOW + CERTIFICATE_MS)
    const { notBefore, ...said } = verifyCertificate(der, expected)
    assert.deepEqual(said, {
      orgId: 'org_7',
      nodeId: 'node_01jd',
      generation: 3,
      publicKey: node.publicKey,
      notAfter,
    })
    assert.ok(notBefore < NOW)
    assert.deepEqual(parseCertificate(der), { ...said, notBefore })
    const x509 = new X509Certificate(pem)
    assert.equal(x509.subjectAltName, 'URI:spiffe://clutch/org/org_7/node/node_01jd/gen/3')
    assert.deepEqual(x509.keyUsage, ['1.3.6.1.5.5.7.3.2'])
    assert.equal(x509.ca, false)
  })

  test('ND-5 every other certificate is refused, with the reason', async () => {
    const { der } = await issueCertificate(request)
    const foreign = await issueCertificate({ ...request, authority: engine })
    const selfSigned = new X509Certificate(node.certificatePem).raw
    const rootSigned = new X509Certificate(root.certificatePem).raw
    const cases: [string, Uint8Array, Partial<typeof expected>][] = [
      ['CERTIFICATE_WRONG_AUTHORITY', foreign.der, {}],
      ['CERTIFICATE_WRONG_AUTHORITY', selfSigned, {}],
      ['CERTIFICATE_MALFORMED', rootSigned, {}], // signed by the authority, but says nothing of a node
      ['CERTIFICATE_OTHER_KEY', der, { peer: engine.publicKey }],
      ['CERTIFICATE_NOT_YET_VALID', der, { now: NOW - HOUR }],
      ['CERTIFICATE_EXPIRED', der, { now: NOW + CERTIFICATE_MS }],
      ['CERTIFICATE_MALFORMED', Buffer.concat([der, Buffer.of(0)]), {}],
      ['CERTIFICATE_MALFORMED', Buffer.from((await issueCertificate(request)).pem), {}],
      ['CERTIFICATE_MALFORMED', Buffer.alloc(10_000, 0x30), {}],
    ]
    for (const [reason, shown, change] of cases)
      assert.throws(() => verifyCertificate(shown, { ...expected, ...change }), refusedAs(reason))
  })

  test('ND-5 a name that would say two things cannot be issued', async () => {
    for (const orgId of ['', 'a/b', 'a,URI:spiffe://x', 'a'.repeat(65), 'a b'])
      await assert.rejects(issueCertificate({ ...request, orgId }), /no SPIFFE id/)
  })

  test('ND-3 any bytes, and any change of one byte, are refused with a reason', async () => {
    const { der } = await issueCertificate(request)
    const refused = (shown: Uint8Array): void =>
      assert.throws(
        () => verifyCertificate(shown, expected),
        (error) =>
          error instanceof AppError && String(error.details.reason).startsWith('CERTIFICATE_'),
      )
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), refused))
    for (let at = 0; at < der.length; at++)
      for (const change of [1, 0x80, 0xff]) {
        const changed = Buffer.from(der)
        changed[at] = (changed[at] ?? 0) ^ change
        refused(changed)
      }
  })
})

// The keys of a fleet, in one folder (`secrets/`, or CLUTCH_KEYRING) that all its engines share and every backup holds.
// 1. A file is made once, complete or not at all, and never changed: of two engines that start on an empty folder both
//    load the same keys. Rotation adds a file with the next number; the highest is current, the others still open what
//    was sealed with them.
// 2. Files are 0600 in a folder 0700; anything wider is refused.
// 3. Nothing here is logged or quoted in an error. A key's id tells nothing about a secret one.
import 'reflect-metadata' // tsyringe, inside @peculiar/x509, throws without it
import {
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  type KeyObject,
} from 'node:crypto'
import { mkdir, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import {
  BasicConstraintsExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'
import { fromBase64 } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import { createFile } from '#store/files/create.ts'

/** An ed25519 pair. */
export type SigningKey = {
  /** 'fleet-root:3f…', from the public key. */
  id: string
  publicKey: KeyObject
  /** Its 32 raw bytes, in hex. */
  publicKeyHex: string
  privateKey: KeyObject
  /** PKCS#8, a secret. */
  pem(): string
}
/** 32 random bytes. */
export type SecretKey = { id: string; key: KeyObject; bytes(): Buffer }
export type Authority = SigningKey & { certificatePem: string }

export type Held<K> = { current: K; all: readonly K[]; find(id: string): K | undefined }

export type Keyring = {
  folder: string
  /** Signs engines' statements; pinned by enroll tokens. */
  fleetRoot: Held<SigningKey>
  /** Signs nodes' certificates. */
  ca: Held<Authority>
  /** Seals services' environments. */
  env: Held<SecretKey>
  /** Seals uploads. */
  upload: Held<SecretKey>
  /** Signs sign-ins. */
  auth: Held<SecretKey>
  /** The key of one engine, made at its first start. Not shared: a second engine has another id. */
  engineKey(engineId: string): Promise<SigningKey>
}

const SIGNING = ['fleet-root', 'ca'] as const
const SECRET = ['env', 'upload', 'auth'] as const
export type KeyKind = (typeof SIGNING)[number] | (typeof SECRET)[number]

const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
const SEED_BYTES = 32
const PUBLIC_KEY_BYTES = 32
const KEY_FILE_BYTES_MAX = 4096

/** Loads the keyring and makes what is missing. Errors: INVALID_STATE `KEYRING_OPEN` (modes), `KEYRING_MALFORMED`. */
export async function openKeyring(folder: string, random: Random): Promise<Keyring> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await refuseOpen(folder, 0o700)
  const signing = (kind: (typeof SIGNING)[number]): Promise<SigningKey[]> =>
    series(folder, kind, random).then((files) => files.map((file) => signingKey(kind, file)))
  const secret = async (kind: (typeof SECRET)[number]): Promise<Held<SecretKey>> =>
    held((await series(folder, kind, random)).map((file) => secretKey(kind, file)))
  return {
    folder,
    fleetRoot: held(await signing('fleet-root')),
    ca: held(await Promise.all((await signing('ca')).map(authority))),
    env: await secret('env'),
    upload: await secret('upload'),
    auth: await secret('auth'),
    async engineKey(engineId) {
      if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(engineId))
        throw new Error(`${JSON.stringify(engineId)} cannot name a key file`)
      const path = join(folder, `engine-${engineId}.pem`)
      await createFile(path, newPem(random), random, { unlessThere: true })
      return signingKey('engine', { path, text: await readKey(path) })
    },
  }
}

/** Adds the next key of a kind; engines use it after they opened the keyring again. Returns its number. */
export async function rotateKey(folder: string, kind: KeyKind, random: Random): Promise<number> {
  await refuseOpen(folder, 0o700)
  const next = ((await numbers(folder, kind)).at(-1) ?? 0) + 1
  await createFile(join(folder, fileName(kind, next)), newText(kind, random), random)
  return next
}

type KeyFile = { path: string; text: string }

const isSigning = (kind: KeyKind): kind is (typeof SIGNING)[number] =>
  SIGNING.some((name) => name === kind)

const fileName = (kind: KeyKind, number: number): string =>
  `${kind}-${number}.${isSigning(kind) ? 'pem' : 'key'}`

/** The keys of a kind, oldest first; the first is made when there is none. */
async function series(folder: string, kind: KeyKind, random: Random): Promise<KeyFile[]> {
  if ((await numbers(folder, kind)).length === 0) {
    const path = join(folder, fileName(kind, 1))
    await createFile(path, newText(kind, random), random, { unlessThere: true })
  }
  const paths = (await numbers(folder, kind)).map((number) => join(folder, fileName(kind, number)))
  return Promise.all(paths.map(async (path) => ({ path, text: await readKey(path) })))
}

async function numbers(folder: string, kind: KeyKind): Promise<number[]> {
  const found = (await readdir(folder)).flatMap((name) => {
    const number = Number(/-(\d+)\.(pem|key)$/.exec(name)?.[1])
    return name === fileName(kind, number) ? [number] : []
  })
  return found.toSorted((a, b) => a - b)
}

async function readKey(path: string): Promise<string> {
  await refuseOpen(path, 0o600)
  if ((await stat(path)).size > KEY_FILE_BYTES_MAX) throw malformed(path, 'it is too long')
  return readFile(path, 'utf8')
}

async function refuseOpen(path: string, mode: number): Promise<void> {
  const found = (await stat(path)).mode & 0o777
  if ((found & 0o077) === 0) return
  throw new AppError(
    'INVALID_STATE',
    `${path} can be read by others: its mode is ${found.toString(8)}, and ${mode.toString(8)} is right`,
    { details: { reason: 'KEYRING_OPEN', next: `chmod ${mode.toString(8)} ${path}` } },
  )
}

const newText = (kind: KeyKind, random: Random): string =>
  isSigning(kind) ? newPem(random) : `${Buffer.from(random.bytes(SEED_BYTES)).toString('base64')}\n`

function newPem(random: Random): string {
  const der = Buffer.concat([PKCS8_PREFIX, random.bytes(SEED_BYTES)])
  const key = createPrivateKey({ key: der, type: 'pkcs8', format: 'der' })
  return key.export({ type: 'pkcs8', format: 'pem' }).toString()
}

function signingKey(kind: string, { path, text }: KeyFile): SigningKey {
  const privateKey = parsePem(path, text)
  const publicKey = createPublicKey(privateKey)
  const spki = publicKey.export({ type: 'spki', format: 'der' })
  const print = createHash('sha256').update(spki)
  return {
    id: `${kind}:${print.digest('hex').slice(0, 16)}`,
    publicKey,
    // RFC 8410: what stands before them is the algorithm.
    publicKeyHex: spki.subarray(-PUBLIC_KEY_BYTES).toString('hex'),
    privateKey,
    pem: () => privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
}

function parsePem(path: string, text: string): KeyObject {
  let key: KeyObject
  try {
    key = createPrivateKey(text)
  } catch {
    throw malformed(path, 'it is not a private key in PKCS#8 PEM') // the cause could quote the key
  }
  if (key.asymmetricKeyType !== 'ed25519')
    throw malformed(path, `it is a key of type ${key.asymmetricKeyType}, and ed25519 is right`)
  return key
}

function secretKey(kind: string, { path, text }: KeyFile): SecretKey {
  const bytes = fromBase64(text.trim())
  if (bytes?.length !== SEED_BYTES) throw malformed(path, `it is not ${SEED_BYTES} bytes in base64`)
  const key = createSecretKey(bytes)
  const print = createHmac('sha256', key).update('clutch key id').digest('hex').slice(0, 16)
  return { id: `${kind}:${print}`, key, bytes: () => key.export() }
}

/** The certificate is a function of the key, so that no second file can be out of step with it. */
async function authority(key: SigningKey): Promise<Authority> {
  const { subtle } = globalThis.crypto
  const der = key.privateKey.export({ type: 'pkcs8', format: 'der' })
  const spki = key.publicKey.export({ type: 'spki', format: 'der' })
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: '01',
    name: `CN=Clutch nodes ${key.id.slice(-16)}`,
    // The key is what is trusted, and it is replaced by rotation: the dates say nothing.
    notBefore: new Date(Date.UTC(2020, 0, 1)),
    notAfter: new Date(Date.UTC(9999, 11, 31)),
    signingAlgorithm: { name: 'Ed25519' },
    keys: {
      privateKey: await subtle.importKey('pkcs8', new Uint8Array(der), 'Ed25519', false, ['sign']),
      publicKey: await subtle.importKey('spki', new Uint8Array(spki), 'Ed25519', true, ['verify']),
    },
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  })
  return { ...key, certificatePem: `${certificate.toString('pem')}\n` }
}

function held<K extends { id: string }>(all: K[]): Held<K> {
  const current = all.at(-1)
  if (current === undefined) throw new Error('invariant broken: a kind of key without a key')
  return { current, all, find: (id) => all.find((key) => key.id === id) }
}

const malformed = (path: string, why: string): AppError =>
  new AppError('INVALID_STATE', `The key file ${path} is damaged: ${why}`, {
    details: { reason: 'KEYRING_MALFORMED', next: 'Restore it from a backup of the keyring' },
  })

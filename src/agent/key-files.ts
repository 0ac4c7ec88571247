// The node's private key: a file of its own (0600), named by the token that it was made for.
//
// Invariants
// 1. A new token gets a new key, so that `revokeIdentity` also ends a key that somebody copied.
// 2. The same token finds the same key: a crash between REGISTER and its welcome binds nothing twice.
import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Random } from '#lib/random.ts'
import { AppError } from '#lib/error.ts'
import { createIdentity, loadIdentity, type Identity } from '#protocol/identity.ts'

const NAME = /^identity-[0-9a-f]{16}\.pem$/

export const keyFileFor = (tokenHash: string): string => `identity-${tokenHash.slice(0, 16)}.pem`

/** The key in the file; made first when there is none. */
export async function openKeyFile(
  dataDir: string,
  name: string,
  random: Random,
): Promise<Identity> {
  return (await loadKeyFile(dataDir, name)) ?? makeKeyFile(dataDir, name, random)
}

/** The key in the file, or undefined when there is no such file. */
export async function loadKeyFile(dataDir: string, name: string): Promise<Identity | undefined> {
  try {
    return await loadIdentity(await readFile(join(dataDir, 'keys', name), 'utf8'))
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    if (error instanceof AppError) throw error
    throw new AppError('INVALID_STATE', `the key file ${name} cannot be read`, {
      cause: error,
      details: { reason: 'DATA_DIR', next: 'run the agent as the user that owns its data folder' },
    })
  }
}

async function makeKeyFile(dataDir: string, name: string, random: Random): Promise<Identity> {
  const folder = join(dataDir, 'keys')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const identity = await createIdentity(random)
  const draft = join(folder, `${name}.draft`)
  const file = await open(draft, 'w', 0o600)
  try {
    await file.writeFile(identity.privateKeyPem)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(draft, join(folder, name))
  return identity
}

/** Removes the keys of earlier identities. */
export async function removeOtherKeys(dataDir: string, keep: string): Promise<void> {
  const folder = join(dataDir, 'keys')
  for (const name of await readdir(folder))
    if (NAME.test(name) && name !== keep) await unlink(join(folder, name))
}

// A file that appears complete or not at all, and survives a power cut once it is there.
import { link, open, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Random } from '#lib/random.ts'

/** Mode 0600. With `unlessThere` an existing file stays as it is; without, it is an error. */
export async function createFile(
  path: string,
  text: string,
  random: Random,
  { unlessThere = false }: { unlessThere?: boolean } = {},
): Promise<void> {
  const draft = `${path}.${Buffer.from(random.bytes(6)).toString('hex')}.part`
  try {
    const file = await open(draft, 'wx', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    // A link, unlike a rename, does not replace what another program put there meanwhile.
    await link(draft, path).catch((error: unknown) => {
      const there = error instanceof Error && 'code' in error && error.code === 'EEXIST'
      if (!there || !unlessThere) throw error
    })
  } finally {
    await rm(draft, { force: true })
  }
  await syncFolder(dirname(path))
}

/** Makes what was renamed or linked into the folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

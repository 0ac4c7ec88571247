// Copies of programs for users that cannot reach the checkout (D20): a clone under a 0700 folder is the usual case.
// 1. A copy is complete or absent: it is made beside its place, flushed, and renamed.
// 2. It is named by its version and never changes; programs that run keep their copy.
import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import type { Random } from '#lib/random.ts'

const run = promisify(execFile)

export type RuntimeCopy = {
  /** 'postgres', 'node', …: letters, digits and dashes. */
  name: string
  version: string
  /** Fills the given empty folder. */
  fill(folder: string): Promise<void>
}

/** The folder `runtime/<name>-<version>`, made by `fill` when it is not there. Readable and executable by everybody. */
export async function runtimeCopy(
  runtime: string,
  copy: RuntimeCopy,
  random: Random,
): Promise<string> {
  const place = join(runtime, `${copy.name}-${copy.version}`)
  if (await exists(place)) return place
  const draft = `${place}.${Buffer.from(random.bytes(6)).toString('hex')}.part`
  await mkdir(draft, { recursive: true, mode: 0o755 })
  try {
    await copy.fill(draft)
    await run('chmod', ['-R', 'u+rwX,go=rX', draft])
    await run('sync', ['-f', draft])
    await rename(draft, place).catch(async (error: unknown) => {
      // Another process was faster; its copy is as good.
      if (!(await exists(place))) throw error
    })
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
  return place
}

/** The path of a Node binary that every user can execute: this process's own, copied. */
export async function runtimeNode(runtime: string, random: Random): Promise<string> {
  const copy: RuntimeCopy = {
    name: 'node',
    version: process.versions.node,
    async fill(folder) {
      await cp(process.execPath, join(folder, 'node'), { dereference: true })
      await chmod(join(folder, 'node'), 0o755)
    },
  }
  return join(await runtimeCopy(runtime, copy, random), 'node')
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

/** Copies a folder with its links as they are. */
export async function copyFolder(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true })
  await cp(from, to, { recursive: true, verbatimSymlinks: true })
}

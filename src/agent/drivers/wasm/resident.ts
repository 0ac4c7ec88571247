// What a runner's process takes of the machine's memory, as the kernel counts it.
import { readFileSync } from 'node:fs'
import { innermost } from '#wasm/jail/below.ts'

const MIB = 1024 * 1024
/** Linux's page on every machine that we run on. */
const PAGE_BYTES = 4096

const textOf = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}

/**
 * Memory in MiB that only the runner holds which was started as `pid`: without the pages of Node's files, which all of
 * its processes share. Undefined when it is gone or not to be seen.
 */
export function residentMb(pid: number | undefined): number | undefined {
  if (pid === undefined) return undefined
  const [, resident, ofFiles] = (textOf(`/proc/${innermost(pid)}/statm`) ?? '').split(' ')
  const pages = Number(resident) - Number(ofFiles)
  return Number.isFinite(pages) ? (pages * PAGE_BYTES) / MIB : undefined
}

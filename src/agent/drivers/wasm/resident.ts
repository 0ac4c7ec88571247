// What a runner's process takes of the machine's memory, as the kernel counts it.
import { readFileSync } from 'node:fs'

const MIB = 1024 * 1024
/** Linux's page on every machine that we run on. */
const PAGE_BYTES = 4096
/** The jail puts one process between us and the runner; more is somebody else's. */
const NESTED_MAX = 4

const textOf = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}

/** The process that the wrappers of the jail hold: the last of a line of only children. */
function innermost(pid: number): number {
  let at = pid
  for (let depth = 0; depth < NESTED_MAX; depth++) {
    const only = /^(\d+) $/.exec(textOf(`/proc/${at}/task/${at}/children`) ?? '')?.[1]
    if (only === undefined) return at
    at = Number(only)
  }
  return at
}

/** Resident memory in MiB of the runner that was started as `pid`; undefined when it is gone or not to be seen. */
export function residentMb(pid: number | undefined): number | undefined {
  if (pid === undefined) return undefined
  const pages = Number(textOf(`/proc/${innermost(pid)}/statm`)?.split(' ')[1])
  return Number.isFinite(pages) ? (pages * PAGE_BYTES) / MIB : undefined
}

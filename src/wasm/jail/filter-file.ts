// The seccomp program as a file without a name: bubblewrap reads it from a descriptor, to its end.
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export type FilterFile = {
  /** A descriptor that reads from the beginning. Close it when the child has it. */
  open(): number
  close(): void
}

export function filterFile(program: Uint8Array): FilterFile {
  const folder = mkdtempSync(join(tmpdir(), 'clutch-filter-'))
  const path = join(folder, 'program')
  const fd = openSync(path, 'wx', 0o400)
  try {
    writeSync(fd, program)
  } finally {
    rmSync(folder, { recursive: true })
  }
  return { open: () => openSync(`/proc/self/fd/${fd}`, 'r'), close: () => closeSync(fd) }
}

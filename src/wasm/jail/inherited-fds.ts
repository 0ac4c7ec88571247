// Descriptors that whoever started this process left open, and that its children would have too: Node opens its own
// with O_CLOEXEC, and sets that on what it was started with only as far as the first gap.
import { readdirSync, readFileSync } from 'node:fs'

const O_CLOEXEC = 0o2000000
const FIRST = 3

function staysOpen(fd: number): boolean {
  try {
    const flags = /^flags:\s+([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // The one that the list was read through.
    return false
  }
}

export const inheritedFds = (): number[] =>
  readdirSync('/proc/self/fd')
    .map(Number)
    .filter((fd) => fd >= FIRST && staysOpen(fd))

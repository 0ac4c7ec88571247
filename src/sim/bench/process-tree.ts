// The machine's processes as /proc tells them (proc(5)): who descends from whom, and who is gone.
// 1. A process is its pid and its start time: a pid that was used again is somebody else.
// 2. A zombie is gone; whether somebody forgot to wait for it is asked separately.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

export type Proc = {
  pid: number
  parent: number
  state: string
  startedAt: string
  /** Joined by spaces; '' for kernel threads and zombies. */
  command: string
}

export function processAt(pid: number): Proc | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const [state = '', parent = ''] = fields
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
    return { pid, parent: Number(parent), state, startedAt: fields[19] ?? '', command }
  } catch {
    return undefined
  }
}

export function allProcesses(): Proc[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.flatMap((pid) => processAt(Number(pid)) ?? [])
}

/** Everything below a process, itself not counted. */
export function descendants(pid: number, among: readonly Proc[] = allProcesses()): Proc[] {
  const children = among.filter((one) => one.parent === pid)
  return children.flatMap((child) => [child, ...descendants(child.pid, among)])
}

export function isGone({ pid, startedAt }: Pick<Proc, 'pid' | 'startedAt'>): boolean {
  const now = processAt(pid)
  return now === undefined || now.startedAt !== startedAt || now.state === 'Z' || now.state === 'X'
}

/** Ticks of /proc/pid/stat a second: the same on every Linux that we run on. */
const TICKS_PER_S = 100

/** CPU time of a process, of those below it, and of its children that have ended, in ms. */
export function cpuMs(pid: number): number {
  const ticks = [pid, ...descendants(pid).map((one) => one.pid)].map((one) => {
    try {
      const text = readFileSync(`/proc/${one}/stat`, 'latin1')
      // utime, stime, cutime, cstime: fields 14 to 17.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
    } catch {
      return 0
    }
  })
  return (ticks.reduce((sum, one) => sum + one, 0) * 1000) / TICKS_PER_S
}

/** Where its open descriptors lead: paths, 'socket:[1234]', 'anon_inode:…'. */
export function openFiles(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`)
      } catch {
        return []
      }
    })
  } catch {
    return []
  }
}

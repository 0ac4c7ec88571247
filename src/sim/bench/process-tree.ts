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

/** CPU time of a process itself, and of its children that have ended, in ms; zeros for one that is gone. */
export function cpuMs(pid: number): { own: number; ended: number } {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // utime, stime, cutime, cstime: fields 14 to 17.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15).map(Number)
    const ms = (ticks: number): number => (ticks * 1000) / TICKS_PER_S
    return { own: ms(user + system), ended: ms(endedUser + endedSystem) }
  } catch {
    return { own: 0, ended: 0 }
  }
}

/** CPU time of a process's children that have ended, and of all that are below it now. */
export function cpuMsBelow(pid: number): number {
  const below = descendants(pid).map((one) => cpuMs(one.pid))
  return below.reduce((sum, { own, ended }) => sum + own + ended, cpuMs(pid).ended)
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

// Which process holds something that outlives it on the machine: its pid, and when it began, for pids come again.
import { readFileSync } from 'node:fs'

export type Owner = { pid: number; began: string }

/** Field 22 of /proc/PID/stat, in ticks since boot; undefined when there is no such process. */
function beganAt(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The second field is a name in parentheses, which may hold anything.
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}

export const ownerOf = (pid: number): Owner => ({ pid, began: beganAt(pid) ?? '0' })

export const isRunning = ({ pid, began }: Owner): boolean => beganAt(pid) === began

/** '412-90311': also the beginning of names that say more. */
export const ownerName = ({ pid, began }: Owner): string => `${pid}-${began}`

export function parseOwner(name: string): Owner | undefined {
  const [, pid, began] = /^(\d+)-(\d+)(?:-|$)/.exec(name) ?? []
  return pid === undefined || began === undefined ? undefined : { pid: Number(pid), began }
}

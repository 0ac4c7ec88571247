// The processes below one of ours: bubblewrap stands between us and the child.
import { readFileSync } from 'node:fs'

/** The children of a process, and theirs; none when it is gone. */
export function below(pid: number): number[] {
  let children: string
  try {
    children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
  } catch {
    return []
  }
  return children
    .split(' ')
    .filter((child) => child !== '')
    .flatMap((child) => [Number(child), ...below(Number(child))])
}

/** The last of a chain of only children. */
export const innermost = (pid: number): number => below(pid).at(-1) ?? pid

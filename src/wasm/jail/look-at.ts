// Starts a child in a jail and looks at it from outside: is it held as the jail says?
import { readFileSync, readlinkSync } from 'node:fs'
import type { Clock } from '#lib/clock.ts'
import { messageOf } from '#lib/error.ts'
import type { Limits } from '#wasm/jail/command.ts'
import type { Jail, Jailed } from '#wasm/jail/jail.ts'
import { innermost } from '#wasm/jail/below.ts'
import type { Layer } from '#wasm/jail/layers.ts'

const MIB = 1024 * 1024
const LIMITS: Limits = {
  dataBytes: 2048 * MIB,
  stackBytes: 16 * MIB,
  filesMax: 64,
  tasksMax: 64,
}
/** A child starts in 60 ms; a loaded machine takes twenty times that. */
const START_MS_MAX = 10_000
const STDERR_CHARS_MAX = 2048

/** What the child does: reads what it may read, says so, and waits. */
const program = (folders: readonly string[]): string =>
  `const { readdirSync, writeSync } = process.getBuiltinModule('node:fs')
  for (const folder of ${JSON.stringify(folders)}) readdirSync(folder)
  writeSync(1, '1'); process.stdin.resume()`

/** What is wrong, in one line; undefined: every layer of the jail is there. */
export async function lookAt(
  jail: Jail,
  { clock, node, folders = [] }: { clock: Clock; node: string; folders?: readonly string[] },
): Promise<string | undefined> {
  let jailed: Jailed | undefined
  try {
    jailed = jail.spawn({
      node,
      args: ['-e', program(folders)],
      limits: LIMITS,
      share: { memMb: 512 },
    })
    const closed = new Promise<void>((resolve) => jailed?.process.once('close', resolve))
    const fault = await started(jailed, clock)
    const found = fault ?? faultOf(jailed, jail.layers)
    jailed.kill()
    await closed
    return found
  } catch (error) {
    jailed?.kill()
    return messageOf(error)
  }
}

/** Resolves when the child has spoken, with why it did not otherwise. */
function started({ process: child }: Jailed, clock: Clock): Promise<string | undefined> {
  let stderr = ''
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr = (stderr + chunk.toString('utf8')).slice(0, STDERR_CHARS_MAX)
  })
  child.stdin?.on('error', () => {})
  return new Promise((resolve) => {
    const cancel = clock.after(START_MS_MAX, () =>
      resolve(`a child did not start within ${START_MS_MAX} ms`),
    )
    const end = (fault: string | undefined): void => {
      cancel()
      resolve(fault)
    }
    child.stdout?.once('data', () => end(undefined))
    child.once('error', (error) => end(messageOf(error)))
    child.once('close', () => end(lineOf(stderr)))
  })
}

const lineOf = (stderr: string): string =>
  stderr
    .split('\n')
    .find((line) => line.trim() !== '')
    ?.trim() ?? 'the child ended without a word'

function faultOf(
  { process: child, place }: Jailed,
  layers: ReadonlySet<Layer>,
): string | undefined {
  const pid = innermost(child.pid ?? 0)
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const field = (name: string): string =>
    new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)?.[1] ?? ''
  const parted = (namespace: string): boolean =>
    readlinkSync(`/proc/${pid}/ns/${namespace}`) !== readlinkSync(`/proc/self/ns/${namespace}`)
  const checks: [Layer, () => boolean][] = [
    ['own-uid', () => field('Uid') === String(place.uid)],
    ['files', () => parted('mnt')],
    ['network', () => parted('net')],
    ['processes', () => parted('pid') && parted('ipc')],
    // SECCOMP_MODE_FILTER
    ['seccomp', () => field('Seccomp') === '2'],
    ['privileges', () => field('NoNewPrivs') === '1' && /^0+$/.test(field('CapEff'))],
    ['cgroup-cpu', () => place.cgroup?.holds(pid) === true],
    ['cgroup-memory', () => place.cgroup?.holds(pid) === true],
    ['cgroup-pids', () => place.cgroup?.holds(pid) === true],
  ]
  for (const [layer, holds] of checks)
    if (layers.has(layer) && !holds())
      return `a child was started, and the layer ${layer} did not hold it`
  return undefined
}

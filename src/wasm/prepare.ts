// From a submitted binary to an artifact that a runner loads: done once, at deploy, in a disposable child.
import { realpathSync } from 'node:fs'
import { dirname, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { systemClock, type Clock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { ARTIFACT_BYTES_MAX } from '#wasm/artifact.ts'
import { checkMagic } from '#wasm/check.ts'
import { readPrepared } from '#wasm/child/answers.ts'
import {
  DOWN,
  type Frame,
  type PrepareRequest,
  type PrepareResult,
  UP,
} from '#wasm/child/frames.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import {
  type ChildEnd,
  describeEnd,
  endedForMemory,
  RestrictedChild,
  STACK_BYTES,
} from '#wasm/child/restricted-child.ts'

export type PrepareOptions = {
  /** MiB: a memory whose minimum is over it is refused. */
  memMb: number
  /** The child is killed past it. */
  deadlineMs?: number
  /** Path of the Node binary. */
  node?: string
  clock?: Clock
  /** Opened with `preparerView`; without it the child has the bare jail. */
  jail?: Jail
}

export type PrepareOutcome =
  | { ok: true; artifact: Uint8Array; kind: 'component' | 'preview1'; preparer: string }
  | { ok: false; reason: string; message: string }

/** Names what made an artifact: one made by another preparer is made again. */
export const PREPARER = 'jco-transpile-0.15.0+clutch-5'

/** FN-1: what the streamed upload accepts. */
export const COMPONENT_BYTES_MAX = 64 * 1024 * 1024

/** A 12 MB component takes 4 s on a slow machine; five times its largest sibling. */
const DEADLINE_MS = 30_000

/** MiB of JavaScript heap: the glue of the largest components. */
const HEAP_MB = 1024

/** The generator's own linear memory and copies of the component. */
const DATA_BYTES = 4 * 1024 * 1024 * 1024

const MIB = 1024 * 1024

const FILES_MAX = 64

/** The minifier has a thread for each core. */
const TASKS_MAX = 1024

const realUrl = (url: string): string => pathToFileURL(realFile(url)).href

const realFile = (url: string): string => realpathSync(fileURLToPath(url))

/** The folder of the package that holds `path`: up to its name under `node_modules`. */
function packageFolder(path: string): string {
  const parts = path.split(sep)
  const at = parts.lastIndexOf('node_modules')
  const depth = parts[at + 1]?.startsWith('@') === true ? 3 : 2
  return parts.slice(0, at + depth).join(sep)
}

/** What the child may read: the generator and the minifier with its native half. */
function toolsOf(): { request: Omit<PrepareRequest, 'memMb'>; folders: string[] } {
  const generatorUrl = import.meta.resolve('@bytecodealliance/jco-transpile/component')
  const minifierUrl = import.meta.resolve('oxc-minify')
  const minifier = packageFolder(realFile(minifierUrl))
  const folders = [
    packageFolder(realFile(generatorUrl)),
    minifier,
    `${dirname(minifier)}${sep}@oxc-minify`,
  ]
  return {
    // Where the files really are: a way through symbolic links is no way inside a jail.
    request: { generatorUrl: realUrl(generatorUrl), minifierUrl: realUrl(minifierUrl) },
    folders,
  }
}

/** What a jail for preparing shows of the machine. */
export function preparerView(): { folders: string[]; loads: string[] } {
  const { request, folders } = toolsOf()
  return { folders, loads: [request.minifierUrl] }
}

const failed = (reason: string, message: string): PrepareOutcome => ({ ok: false, reason, message })

function endOutcome(end: ChildEnd, deadlineMs: number | undefined): PrepareOutcome {
  const next =
    'nothing was kept; if it happens again, the component is outside what this version prepares'
  if (deadlineMs !== undefined)
    return failed('PREPARER_TIMEOUT', `preparing took longer than ${deadlineMs} ms; ${next}`)
  if (endedForMemory(end)) return failed('PREPARER_MEMORY', `preparing ran out of memory; ${next}`)
  return failed('PREPARER_FAILED', `the preparer ended with ${describeEnd(end)}; ${next}`)
}

/** Refusals that need no child: size and magic. */
function refusedEarly(bytes: Uint8Array): PrepareOutcome | undefined {
  if (bytes.length > COMPONENT_BYTES_MAX)
    return failed(
      'TOO_LARGE',
      `the component has ${bytes.length} bytes, over the limit of ${COMPONENT_BYTES_MAX}`,
    )
  try {
    checkMagic(bytes)
    return undefined
  } catch (error) {
    const reason = error instanceof AppError ? (error.details.reason ?? error.code) : 'INVALID'
    return failed(reason, messageOf(error))
  }
}

/** Checks and prepares a component or a preview 1 module. Every refusal is an outcome; it does not throw. */
export async function prepare(bytes: Uint8Array, options: PrepareOptions): Promise<PrepareOutcome> {
  const early = refusedEarly(bytes)
  if (early !== undefined) return early
  const { memMb, deadlineMs = DEADLINE_MS, node = process.execPath, clock = systemClock } = options
  const { request, folders } = toolsOf()
  let result: PrepareResult | undefined
  let artifact: Uint8Array | undefined
  const onFrame = ({ kind, payload }: Frame): void => {
    if (kind === UP.prepared) result = readPrepared(payload)
    else if (kind === UP.bytes) artifact = new Uint8Array(payload)
    else throw new Error(`unknown frame ${kind}`)
  }
  const child = new RestrictedChild({
    node,
    entry: '#wasm/prepare-child.ts',
    heapMb: HEAP_MB,
    // The minifier is a native addon. It sees our generator's text only after its names were checked.
    flags: ['--allow-addons', ...folders.map((folder) => `--allow-fs-read=${folder}${sep}`)],
    ...(options.jail === undefined ? {} : { jail: options.jail }),
    share: { memMb: DATA_BYTES / MIB },
    frameBytesMax: ARTIFACT_BYTES_MAX,
    limits: {
      dataBytes: DATA_BYTES,
      stackBytes: STACK_BYTES,
      filesMax: FILES_MAX,
      tasksMax: TASKS_MAX,
    },
    onFrame,
  })
  let late = false
  const cancel = clock.after(deadlineMs, () => {
    late = true
    child.kill()
  })
  child.sendJson(DOWN.prepare, { ...request, memMb } satisfies PrepareRequest)
  child.send(DOWN.bytes, bytes)
  const end = await child.ended
  cancel()
  if (result?.ok === false) return result
  if (result?.ok === true && artifact !== undefined && end.code === 0)
    return { ok: true, artifact, kind: result.kind, preparer: PREPARER }
  return endOutcome(end, late ? deadlineMs : undefined)
}

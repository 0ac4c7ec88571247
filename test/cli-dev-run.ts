// `ccp dev` and `ccp` as programs of their own, for the end-to-end tests of the command line.
import { spawn, type ChildProcess } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

export const checkout = join(import.meta.dirname, '..')

export type Ended = { code: number | null; signal: string | null; out: string; err: string }

/** A folder that the postgres user can walk through (D20), gone after the test. */
export function openFolder(t: Pick<TestContext, 'after'>, prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix))
  chmodSync(folder, 0o755)
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  return folder
}

/** The environment of a test, without what would make `ccp` look elsewhere. */
export function cleanEnv(extra: Record<string, string>): Record<string, string> {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(CCP_|CLUTCH_|NODE_|npm_|DATABASE_URL)/.test(name),
  )
  return { ...(Object.fromEntries(kept) as Record<string, string>), ...extra }
}

export type Started = {
  child: ChildProcess
  ended: Promise<Ended>
  output: () => string
}

export function start(
  command: string,
  argv: readonly string[],
  options: { env: Record<string, string>; cwd?: string; stdin?: string },
): Started {
  const started = startOpen(command, argv, options.env, options.cwd)
  started.child.stdin?.end(options.stdin ?? '')
  return started
}

/** With its stdin still open. */
export function startOpen(
  command: string,
  argv: readonly string[],
  env: Record<string, string>,
  cwd = checkout,
): Started {
  const child = spawn(command, argv, { env, cwd })
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text))
  child.stdin.on('error', () => {}) // it ended without reading
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      child.stdin.destroy()
      resolve({ code, signal, out, err })
    })
  })
  return { child, ended, output: () => out + err }
}

/** Pids of processes that name the folder in their command line. */
export function processesOf(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => commandOf(pid).includes(folder))
}

/** Its command line, or '' when it is gone. */
export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

// A platform by `ccp dev` for one test file, and `ccp` against it.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { until } from '#lib/until.ts'
import { freePort } from '#sim/bench/program.ts'
import { checkout, cleanEnv, openFolder, start, type Ended, type Started } from './cli-dev-run.ts'

const READY_MS = 120_000
export const ccpPath = join(checkout, 'bin/ccp')

type Scope = { after: (fn: () => void) => void }
export type DevBed = {
  home: string
  /** HOME of the person at the keyboard. */
  user: string
  http: number
  sessions: number
  /** The `ccp dev` that runs now; a test may replace it. */
  dev: Started
  startDev: () => Started
  ready: (started: Started) => Promise<boolean>
  ccp: (argv: string[], more?: { env?: Record<string, string>; stdin?: string }) => Promise<Ended>
  /** The answer of a command that must succeed, by --json. */
  json: <T>(argv: string[]) => Promise<T>
  close: () => Promise<void>
}

export async function startDevBed(): Promise<DevBed> {
  const cleanups: (() => void)[] = []
  const scope: Scope = { after: (fn) => void cleanups.push(fn) }
  const home = openFolder(scope, 'ccp-dev-home-')
  const user = openFolder(scope, 'ccp-dev-user-')
  const [http, sessions] = [await freePort(), await freePort()]
  const ports = ['--port', String(http), '--session-port', String(sessions)]
  const startDev = (): Started =>
    start(ccpPath, ['dev', '--home', home, ...ports], { env: cleanEnv({ HOME: user }) })
  const ready = (started: Started): Promise<boolean> =>
    until(
      'ccp dev is ready',
      () => {
        if (started.child.exitCode !== null) throw new Error(`ccp dev ended: ${started.output()}`)
        return started.output().includes('Ctrl-C stops')
      },
      READY_MS,
    )
  const ccp: DevBed['ccp'] = (argv, { env = {}, stdin = '' } = {}) =>
    start(ccpPath, argv, { env: cleanEnv({ HOME: user, CLUTCH_HOME: home, ...env }), stdin }).ended
  const bed: DevBed = {
    home,
    user,
    http,
    sessions,
    dev: startDev(),
    startDev,
    ready,
    ccp,
    async json<T>(argv: string[]) {
      const { code, out, err } = await ccp([...argv, '--json'])
      assert.equal(code, 0, err)
      return JSON.parse(out) as T
    },
    async close() {
      bed.dev.child.kill('SIGINT')
      await bed.dev.ended
      for (const cleanup of cleanups) cleanup()
    },
  }
  await ready(bed.dev)
  return bed
}

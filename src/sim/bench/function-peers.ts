// What functions are measured beside, in the same run: plain node:http and workerd on the same work.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '#lib/until.ts'
import { post } from '#sim/bench/load.ts'
import type { Target } from '#sim/bench/load-client.ts'
import { freePort, Program } from '#sim/bench/program.ts'

/** Its own package, with its own lock: no part of what the product installs. */
const WORKERD = join(import.meta.dirname, 'workerd')
const PLATFORM_BINARY = { x64: 'workerd-linux-64', arm64: 'workerd-linux-arm64' }
/** 160 MB unpacked. */
const INSTALL_MS = 180_000

export type Peer = {
  name: 'node_http' | 'workerd'
  title: string
  target: Target
  end(): Promise<void>
}

type Work = { stdin: string; answer: string }

export async function startNodeHttp(work: Work): Promise<Peer> {
  const port = await freePort()
  const args = [join(import.meta.dirname, 'node-http.ts'), String(port)]
  const program = new Program({ name: process.execPath, args })
  return ready({ name: 'node_http', title: 'plain node:http', program, port }, work)
}

/** Undefined when it cannot be had here; stderr says why. */
export async function startWorkerd(work: Work): Promise<Peer | undefined> {
  const binary = installed()
  if (binary === undefined) return undefined
  const port = await freePort()
  const args = ['serve', '--socket-addr', `http=127.0.0.1:${port}`, join(WORKERD, 'words.capnp')]
  const program = new Program({ name: binary, args })
  return ready({ name: 'workerd', title: 'workerd', program, port }, work)
}

type Started = Omit<Peer, 'target' | 'end'> & { program: Program; port: number }

async function ready({ name, title, program, port }: Started, work: Work): Promise<Peer> {
  const body = JSON.stringify({ stdin: work.stdin })
  const target = { port, request: post('/', {}, body), answer: work.answer }
  try {
    await until(
      () => `${title} answers: ${program.tail()}`,
      async () => (await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body })).ok,
    )
  } catch (error) {
    await program.kill()
    throw error
  }
  return { name, title, target, end: () => program.kill() }
}

/** The binary itself: the package's command is a script around it. */
function installed(): string | undefined {
  const platform = Object.entries(PLATFORM_BINARY).find(([arch]) => arch === process.arch)?.[1]
  if (platform === undefined) {
    process.stderr.write(`functions: no workerd for ${process.arch}; its rows are left out\n`)
    return undefined
  }
  const binary = join(WORKERD, 'node_modules/@cloudflare', platform, 'bin/workerd')
  if (existsSync(binary)) return binary
  const args = [
    'ci',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    '--fetch-retries=1',
  ]
  const npm = spawnSync('npm', args, { cwd: WORKERD, encoding: 'utf8', timeout: INSTALL_MS })
  if (existsSync(binary)) return binary
  const why = npm.error?.message ?? npm.stderr.split('\n').slice(0, 4).join('; ')
  process.stderr.write(`functions: workerd cannot be installed, its rows are left out: ${why}\n`)
  return undefined
}

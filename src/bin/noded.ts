// clutch-noded: offers this machine to a Clutch platform.
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { AGENT_HELP, parseAgentConfig } from '#agent/config.ts'
import { humanLines } from '#agent/human-log.ts'
import { openAgent, RunningAgent } from '#agent/start-agent.ts'
import { systemClock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { createLogger } from '#lib/log.ts'
import { systemRandom } from '#lib/random.ts'

/** sysexits.h, EX_CONFIG: a supervisor of processes should not start it again. */
const EXIT_CONFIG = 78
/** What runs may take this long to end after SIGTERM; systemd waits 90 s. */
const STOP_GRACE_MS = 20_000

const { version } = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'),
) as { version: string }

async function main(argv: string[]): Promise<number> {
  if (argv.includes('--help')) return say(AGENT_HELP, 0)
  if (argv.includes('--version')) return say(`clutch-noded ${version}\n`, 0)
  const config = parseAgentConfig(argv, process.env, {
    home: homedir(),
    uid: process.getuid?.() ?? 0,
  })
  // The token's work is done here: children and crash reports need not see it.
  delete process.env['CLUTCH_TOKEN']
  const destination = process.stderr.isTTY
    ? humanLines((text) => void process.stderr.write(text))
    : process.stderr
  const log = createLogger('noded', config.logLevel, destination)
  const agent = await openAgent({
    version,
    config,
    clock: systemClock,
    random: systemRandom,
    log,
    node: process.execPath,
  })
  const running = new RunningAgent(agent)
  let stopping = false
  const stop = (signal: string): void => {
    if (stopping) process.exit(1)
    stopping = true
    log.info(`${signal}: leaving`)
    running.stop(STOP_GRACE_MS).catch((error) => log.error({ err: error }, 'leaving failed'))
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  const ended = await running.run()
  if (ended.kind === 'drained') return 0
  return complain(ended.reason, ended.message)
}

function say(text: string, code: number): number {
  process.stdout.write(text)
  return code
}

function complain(reason: string, message: string, next?: string): number {
  process.stderr.write(`${reason}: ${message}\n${next === undefined ? '' : `  → ${next}\n`}`)
  return EXIT_CONFIG
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof AppError)) throw error
  const { reason = error.code, next } = error.details
  process.exitCode = complain(reason, messageOf(error), next)
}

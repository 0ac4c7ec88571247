// The command line: hands the process to src/cli.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Interrupted } from '#cli/failure.ts'
import { runCcp } from '#cli/run.ts'
import { systemClock } from '#lib/clock.ts'
import { systemRandom } from '#lib/random.ts'

const root = join(import.meta.dirname, '../..')
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- our own file
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  version: string
}

const interrupt = new AbortController()
process.once('SIGINT', () => interrupt.abort(new Interrupted('interrupted')))
process.once('SIGTERM', () => interrupt.abort(new Interrupted('terminated')))
// A reader that went away (`ccp … | head`) is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0)
  throw error
})

process.exitCode = await runCcp({
  process,
  argv: process.argv.slice(2),
  root,
  version,
  clock: systemClock,
  random: systemRandom,
  uid: process.getuid?.() ?? 0,
  signal: interrupt.signal,
})

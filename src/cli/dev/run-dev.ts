// `ccp dev` from its first line to its last.
import { join, relative } from 'node:path'
import type { Cli } from '#cli/cli.ts'
import { runDemo } from '#cli/dev/demo.ts'
import { followLogs } from '#cli/dev/follow-logs.ts'
import { choosePlace, Platform, type PlatformOptions } from '#cli/dev/platform.ts'
import { createSteps, printFacts } from '#cli/dev/steps.ts'
import { Interrupted } from '#cli/failure.ts'
import { formatDuration } from '#lib/duration.ts'

export type DevOptions = PlatformOptions & { once: boolean; demo: boolean; verbose: boolean }

/** Returns when it was stopped by Ctrl-C, or at the end of `--once`. Errors: whatever kept it from running. */
export async function runDev(cli: Cli, options: DevOptions): Promise<void> {
  const { clock, out, signal } = cli
  const began = clock.monotonic()
  const place = await choosePlace(cli, options)
  const steps = createSteps(cli)
  const platform = new Platform(cli, steps, place)
  const logs = options.verbose ? followLogs(cli, platform) : undefined
  let started = false
  try {
    await platform.startEngine()
    await platform.startNode()
    // Before simulated nodes are there: they answer work without doing it.
    if (options.demo) await runDemo(cli, steps, platform)
    if (options.simulated > 0) await platform.startSimulated(options.simulated)
    started = true
    out.line(`  ${out.style('dim', `in all ${formatDuration(clock.monotonic() - began)}`)}`)
    printFacts(cli, await factsOf(cli, platform))
    if (options.once) out.line('  All of it stops now; without --once it stays.')
    else {
      out.line('  Ctrl-C stops all of it.')
      await forever(cli)
    }
  } catch (error) {
    if (!(error instanceof Interrupted) && !signal.aborted) throw error
    if (!started) throw new Interrupted('interrupted')
  } finally {
    if (!options.once && platform.programs.length > 0) out.note('\nStopping …')
    await platform.stop()
    logs?.stop()
  }
}

async function factsOf(cli: Cli, platform: Platform): Promise<[string, string][]> {
  const { url, state } = platform.place
  const owner = await platform.ownerLink()
  return [
    ['Console', url],
    owner === undefined ? ['Sign in', `${url}/sign-in`] : ['Become owner', `${owner}  (once)`],
    ['API docs', `${url}/docs`],
    ['State', state],
    ['Logs', `${state}/logs`],
    // As it can be typed here: nothing puts it on the PATH.
    ['Try', `${relative('', join(cli.root, 'bin/ccp'))} nodes list`],
  ]
}

/** Until Ctrl-C. */
async function forever({ clock, signal }: Cli): Promise<void> {
  for (;;) await clock.sleep(3_600_000, signal)
}

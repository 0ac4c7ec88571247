// The steps of a start, one line each with its time, so that a slow or failing one can be seen.
import type { Cli } from '#cli/cli.ts'
import { columns } from '#cli/output.ts'
import { formatDuration } from '#lib/duration.ts'

const NAME_WIDTH = 34
const TIME_WIDTH = 9

export type Steps = {
  /** Runs one step: its line appears when it has ended. What it returns as `note` stands at the line's end. */
  run<T extends { note?: string }>(name: string, work: () => Promise<T>): Promise<T>
}

export function createSteps(cli: Pick<Cli, 'clock' | 'out' | 'ask'>): Steps {
  const { clock, out, ask } = cli
  return {
    async run(name, work) {
      const began = clock.monotonic()
      const progress = await ask.progress(`waiting for: ${name}`)
      const end = (mark: string, note: string): void => {
        progress.done()
        const time = formatDuration(clock.monotonic() - began).padStart(TIME_WIDTH)
        out.line(`  ${mark} ${name.padEnd(NAME_WIDTH)} ${time}  ${note}`.trimEnd())
      }
      try {
        const result = await work()
        end(out.style('green', '✓'), out.style('dim', result.note ?? ''))
        return result
      } catch (error) {
        end(out.style('red', '✗'), '')
        throw error
      }
    },
  }
}

/** The closing lines: 'Console   http://…'. */
export function printFacts(
  cli: Pick<Cli, 'out'>,
  facts: readonly (readonly [string, string])[],
): void {
  cli.out.line()
  for (const row of columns(facts.map(([name, value]) => [cli.out.style('dim', name), value])))
    cli.out.line(`  ${row}`)
  cli.out.line()
}

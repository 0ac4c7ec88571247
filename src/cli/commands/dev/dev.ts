import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { docs, flag, number, text } from '#cli/flags.ts'
import { checkedPort, checkedCount } from '#cli/commands/dev/checked.ts'

type Flags = {
  readonly home?: string
  readonly port?: number
  readonly sessionPort?: number
  readonly sim?: number
  readonly once?: boolean
  readonly demo?: boolean
  readonly verbose?: boolean
}

export const dev = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'Start a whole platform on this machine',
    more:
      'An engine with its own Postgres, one local node, and as many simulated nodes as you like. Ctrl-C stops all of it;\n' +
      'the next start finds the same platform. Other `ccp` commands use it while it runs, by its key in secrets/dev-key.',
    examples: [
      'ccp dev',
      'ccp dev --sim 100',
      'ccp dev --home /tmp/try --port 8070 --session-port 8443',
    ],
  }),
  parameters: {
    flags: {
      home: text(
        'State folder (default: CLUTCH_HOME, else /var/lib/clutch or ~/.local/state/clutch)',
        'folder',
      ),
      port: number('Port of the API and the console (default 7070)'),
      sessionPort: number('Port that nodes dial, UDP and TCP (default 7443)'),
      sim: number('Simulated nodes that speak the real protocol (default 0)'),
      once: flag('Stop when everything has run; picks free ports'),
      demo: flag('Deploy the word-count example and invoke it'),
      verbose: flag('Show what the programs log'),
    },
    aliases: { v: 'verbose' },
  },
  async func(flags) {
    const { runDev } = await import('#cli/dev/run-dev.ts')
    await runDev(this, {
      home: flags.home,
      port: checkedPort('--port', flags.port),
      sessionPort: checkedPort('--session-port', flags.sessionPort),
      simulated: checkedCount('--sim', flags.sim),
      anyPort: flags.once === true,
      once: flags.once === true,
      demo: flags.demo === true,
      verbose: flags.verbose === true,
    })
  },
})

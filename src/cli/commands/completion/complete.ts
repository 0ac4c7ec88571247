import { buildCommand, proposeCompletions } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { docs } from '#cli/flags.ts'

export const complete = buildCommand<Record<never, never>, string[], Cli>({
  docs: docs({
    brief: 'Print what could come next, one a line; the script of `ccp completion` calls it',
    examples: ['ccp complete -- nodes set-'],
  }),
  parameters: {
    positional: {
      kind: 'array',
      parameter: { parse: String, placeholder: 'words', brief: 'The words so far' },
    },
  },
  async func(_flags, ...words) {
    // The tree holds this command: it is there by the time that this runs.
    const { buildApp } = await import('#cli/app.ts')
    const app = buildApp(this.version, false, () => {})
    const proposals = await proposeCompletions(app, words, this)
    for (const { completion } of proposals) this.out.line(completion)
  },
})

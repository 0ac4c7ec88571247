// cli.md: the help of every command, as `ccp … --help` prints it.
import {
  generateHelpTextForAllCommands,
  type Application,
  type CommandContext,
} from '@stricli/core'
import { buildApp } from '#cli/app.ts'
import { VARIABLES } from '#cli/settings.ts'
import { block, code, page, table } from './markdown.ts'

export function cliPage(): string {
  // Only the texts are read; no command runs.
  const app = buildApp('', false, () => {}) as unknown as Application<CommandContext>
  const commands = generateHelpTextForAllCommands(app)
    // `ccp compute nodes …` is `ccp nodes …`.
    .filter(([route]) => !route.startsWith('ccp compute'))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
  return page(
    'The command line',
    '`ccp nodes …` and `ccp compute nodes …` are the same, and so for functions, placement and events.',
    '## Exit codes',
    table(
      ['Code', 'Means'],
      [
        ['0', 'done'],
        ['1', 'refused or failed; stderr has `CODE: message` and the next step'],
        [
          '2',
          'the command line could not be read: an unknown command or flag, an argument missing',
        ],
        ['77', 'not signed in'],
        ['124', '`functions invoke`: the invocation timed out'],
        ['130', 'interrupted'],
        ['other', '`functions invoke`: what the function itself exited with'],
      ],
    ),
    '## Environment',
    table(
      ['Variable', 'What it says'],
      Object.entries(VARIABLES).map(([name, help]) => [code(name), help]),
    ),
    'The address is the first of `CCP_API_URL`, the current sign-in of `~/.ccp/session.json` (0600), the platform of ' +
      '`ccp dev` on this machine, `http://127.0.0.1:7070`. The credential is the first of `CCP_API_KEY`, `CCP_SESSION_TOKEN`, ' +
      'the sign-in at that address, the key of `ccp dev` in `secrets/dev-key`. With `--json` a failure is also printed on ' +
      'stdout, as `{ "error": { code, reason, message, also, next } }`.',
    '## Commands',
    ...commands.map(([route, help]) => `### ${route}\n\n${block(help)}`),
  )
}

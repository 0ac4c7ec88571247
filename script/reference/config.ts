// config.md: what each program is started with.
import { AGENT_HELP } from '#agent/config.ts'
import { engineSettings, settings } from '#engine/config.ts'
import { VARIABLES } from '#cli/settings.ts'
import { block, code, page, table } from './markdown.ts'

export function configPage(): string {
  const rows = settings.map(({ name, env, flag, help }) => [
    code(env),
    flag === undefined ? 'none: it is a secret' : code(`--${flag}`),
    defaultOf(name),
    help,
  ])
  return page(
    'Configuration',
    'Every program reads its environment and its flags once, flags first. What it does not know is an error.',
    '## clutch-engine',
    table(['Variable', 'Flag', 'Default', 'What it says'], rows),
    '## clutch-noded',
    block(AGENT_HELP),
    '## ccp',
    table(
      ['Variable', 'What it says'],
      Object.entries(VARIABLES).map(([name, help]) => [code(name), help]),
    ),
  )
}

function defaultOf(name: keyof typeof engineSettings.shape): string {
  const parsed = engineSettings.shape[name].safeParse(undefined)
  if (!parsed.success || parsed.data === undefined) return ''
  return code(Array.isArray(parsed.data) ? parsed.data.join(',') || 'none' : String(parsed.data))
}

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { argument, docs } from '#cli/flags.ts'

/** The shell hands over the words before the cursor; the last one is what is being typed. */
const BASH = `_ccp() {
  local IFS=$'\\n'
  COMPREPLY=($(ccp complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ccp ccp
`
const ZSH = `autoload -U +X bashcompinit && bashcompinit
${BASH}`

export const completion = buildCommand<Record<never, never>, [shell: 'bash' | 'zsh'], Cli>({
  docs: docs({
    brief: 'Print the shell script that completes `ccp` commands and flags',
    examples: ['ccp completion bash > /etc/bash_completion.d/ccp', 'source <(ccp completion zsh)'],
  }),
  parameters: {
    positional: {
      kind: 'tuple',
      parameters: [{ ...argument('shell', 'bash or zsh', ['bash', 'zsh']), parse: shellOf }],
    },
  },
  func(_flags, shell) {
    this.process.stdout.write(shell === 'bash' ? BASH : ZSH)
  },
})

function shellOf(input: string): 'bash' | 'zsh' {
  if (input === 'bash' || input === 'zsh') return input
  throw new SyntaxError(`expected bash or zsh, not '${input}'`)
}

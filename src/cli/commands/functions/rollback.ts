import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { argument, common, docs, number, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'

type Flags = CommonFlags & { readonly version?: number }

export const rollback = buildCommand<Flags, [name: string], Cli>({
  docs: docs({
    brief: 'Make an earlier version current again',
    examples: [
      'ccp functions rollback word-count',
      'ccp functions rollback word-count --version 3',
    ],
  }),
  parameters: {
    flags: {
      ...common,
      version: number('The version (default: the one before the current)'),
    },
    positional: { kind: 'tuple', parameters: [argument('name', 'The function’s name')] },
  },
  async func({ json, orgId, version }, name) {
    const input = { name, ...(version === undefined ? {} : { version }) }
    const procedure = 'compute.functions.rollback'
    const org = await resolveOrg(this, orgId, { procedure, fields: input })
    const made = await (await this.api()).compute.functions.rollback({ orgId: org, ...input })
    if (json) return this.out.json(made)
    this.out.line(`${made.function.name} runs version ${made.function.version}`)
  },
})

import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { quotaPairs } from '#cli/commands/quotas/present.ts'
import { common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { INVOCATIONS_AT_ONCE_RANGE } from '#core/function/limits.ts'

type Flags = CommonFlags & { readonly invocationsAtOnce: number | null }

const { min, max } = INVOCATIONS_AT_ONCE_RANGE

/** Text that is no number goes on as it is: the contract refuses it with the range and the text. */
const numberOrDefault = (input: string): number | null => {
  if (input === 'default') return null
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- refused by the contract before it is sent
  return /^-?\d+(\.\d+)?$/.test(input) ? Number(input) : (input as unknown as number)
}

export const set = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'Say what an organization may take at a time, as a platform operator',
    more: 'An owner of the organization `platform` who is signed in is a platform operator; an API key never is.',
    examples: [
      'ccp quotas set --org-id acme --invocations-at-once 5000',
      'ccp quotas set --org-id acme --invocations-at-once default',
    ],
  }),
  parameters: {
    flags: {
      ...common,
      invocationsAtOnce: {
        kind: 'parsed',
        parse: numberOrDefault,
        brief: `Invocations that run or wait at one engine, ${min}–${max}, or default`,
        placeholder: 'n|default',
      },
    },
  },
  async func({ json, orgId, invocationsAtOnce }) {
    const org = await resolveOrg(this, orgId, {
      procedure: 'compute.quotas.set',
      fields: { invocationsAtOnce },
    })
    const made = await (await this.api()).compute.quotas.set({ orgId: org, invocationsAtOnce })
    if (json) return this.out.json(made)
    this.out.pairs(quotaPairs(made.quotas))
  },
})

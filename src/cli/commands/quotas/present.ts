// How quotas read to people.
type Quotas = { invocations_at_once: number; source: 'default' | 'org' }

export const quotaPairs = ({ invocations_at_once, source }: Quotas): [string, string][] => [
  [
    'Invocations at once',
    `${invocations_at_once} (${source === 'org' ? 'set for this organization' : 'the default'})`,
  ],
]

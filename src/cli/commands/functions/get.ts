import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { kilobytes, placementText } from '#cli/commands/functions/present.ts'
import { argument, common, docs, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago, cores } from '#cli/output.ts'
import { formatDuration } from '#lib/duration.ts'

export const get = buildCommand<CommonFlags, [name: string], Cli>({
  docs: docs({
    brief: 'Show one function with its versions',
    examples: ['ccp functions get word-count', 'ccp functions get word-count --json'],
  }),
  parameters: {
    flags: common,
    positional: { kind: 'tuple', parameters: [argument('name', 'The function’s name')] },
  },
  async func({ json, orgId }, name) {
    const org = await resolveOrg(this, orgId)
    const found = await (await this.api()).compute.functions.get({ orgId: org, name })
    if (json) return this.out.json(found)
    const { function: f, versions } = found
    const now = this.clock.now()
    this.out.line(this.out.style('bold', f.name))
    this.out.pairs([
      ['ID', f.id],
      ['Version', String(f.version)],
      ['Component', `${kilobytes(f.size_bytes)}, sha256 ${f.sha256}`],
      ['Resources', `${cores(f.cpu_millis)}, ${f.mem_mb} MB`],
      ['Placement', placementText(f)],
      ['Region', f.region ?? 'any'],
      ['Timeout', formatDuration(f.timeout_ms)],
      ['Fuel', f.fuel_max === null ? 'as much as the time allows' : `at most ${f.fuel_max}`],
      ['Idempotent', f.idempotent ? 'yes: run again elsewhere when a node is lost' : 'no'],
      ['Public', f.public ? 'yes' : 'no'],
    ])
    this.out.line('\nVersions')
    this.out.table(
      ['VERSION', 'SHA-256', 'SIZE', 'CORES', 'MEMORY', 'PLACEMENT', 'DEPLOYED', 'BY'],
      versions.map((v) => [
        v.current ? this.out.style('green', `${v.version} (current)`) : String(v.version),
        v.sha256.slice(0, 12),
        kilobytes(v.size_bytes),
        cores(v.cpu_millis),
        `${v.mem_mb} MB`,
        placementText(v),
        ago(v.created_at, now),
        v.created_by,
      ]),
    )
  },
})

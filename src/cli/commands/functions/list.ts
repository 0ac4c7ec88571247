import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { kilobytes, placementText } from '#cli/commands/functions/present.ts'
import { common, docs, type CommonFlags } from '#cli/flags.ts'
import { listFunctions } from '#cli/list-pages.ts'
import { resolveOrg } from '#cli/org.ts'
import { ago, cores } from '#cli/output.ts'

export const list = buildCommand<CommonFlags, [], Cli>({
  docs: docs({
    brief: 'List the functions of the organization',
    examples: ['ccp functions list', 'ccp functions list --json'],
  }),
  parameters: { flags: common },
  async func({ json, orgId }) {
    const org = await resolveOrg(this, orgId)
    const functions = await listFunctions(await this.api(), org)
    if (json) return this.out.json({ functions })
    if (functions.length === 0)
      return this.out.line('no functions deployed: run `ccp functions deploy FILE.wasm` to add one')
    this.out.table(
      ['NAME', 'VERSION', 'CORES', 'MEMORY', 'SIZE', 'REGION', 'PLACEMENT', 'DEPLOYED'],
      functions.map((f) => [
        this.out.style('bold', f.name),
        String(f.version),
        cores(f.cpu_millis),
        `${f.mem_mb} MB`,
        kilobytes(f.size_bytes),
        f.region ?? '-',
        placementText(f),
        ago(f.updated_at, this.clock.now()),
      ]),
    )
  },
})

import { readFile, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { kilobytes, placementText } from '#cli/commands/functions/present.ts'
import { unreadable } from '#cli/failure.ts'
import { argument, common, docs, flag, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import { cores } from '#cli/output.ts'
import { COMPONENT_INLINE_MAX, CPU_MILLIS, MEM_MB, TIMEOUT_MS } from '#core/function/limits.ts'
import { NAME_LENGTH_MAX, NAME_PATTERN, NAME_RULE } from '#core/name.ts'
import { formatBytes } from '#lib/bytes.ts'
import { formatDuration } from '#lib/duration.ts'
import { AppError } from '#lib/error.ts'
import { checkMagic } from '#wasm/check.ts'

type Flags = CommonFlags & {
  readonly name?: string
  readonly cpuMillis?: number
  readonly memMb?: number
  readonly timeoutMs?: number
  readonly region?: string
  readonly allowCommunity?: boolean
  readonly idempotent?: boolean
  readonly public?: boolean
}

const range = (what: string, r: { min: number; max: number; default: number }): string =>
  `${what}, ${r.min}–${r.max} (default ${r.default})`

export const deploy = buildCommand<Flags, [file: string], Cli>({
  docs: docs({
    brief: 'Check, prepare and store a component under a name',
    more: 'The bytes are checked here, while you are still looking at the file, and again by the engine.\nDeploying a name again makes its next version; what runs goes on with the old bytes.',
    examples: [
      'ccp functions deploy word-count.wasm',
      'ccp functions deploy build/app.wasm --name resize-thumbnails --mem-mb 256 --allow-community',
    ],
  }),
  parameters: {
    positional: { kind: 'tuple', parameters: [argument('file', 'A .wasm file')] },
    flags: {
      ...common,
      name: text('The function’s name (default: the file’s, without .wasm)', 'name'),
      cpuMillis: number(range('CPU in thousandths of a core', CPU_MILLIS)),
      memMb: number(range('Memory in MB', MEM_MB)),
      timeoutMs: number(range('Wall time of an invocation in ms', TIMEOUT_MS)),
      region: text('Only on nodes of this region', 'region'),
      allowCommunity: flag('May run on community nodes, which are somebody else’s hardware'),
      idempotent: flag('May be run again elsewhere when a node is lost in the middle'),
      public: flag('May be called by anyone at its address'),
    },
    aliases: { n: 'name' },
  },
  async func({ json, orgId, name, ...fields }, file) {
    const bytes = await readComponent(file)
    checkMagic(bytes)
    const called = name ?? nameOf(file)
    const org = await resolveOrg(this, orgId, {
      procedure: 'compute.functions.deploy',
      fields: { name: called, component: '', ...fields },
    })
    const progress = await this.ask.progress(
      `Uploading ${formatBytes(bytes.length)} and preparing ${called}`,
    )
    const began = this.clock.monotonic()
    const component = bytes.toString('base64')
    const made = await (
      await this.api()
    ).compute.functions
      .deploy({ orgId: org, name: called, component, ...fields })
      .finally(() => progress.done())
    if (json) return this.out.json(made)
    const f = made.function
    const took = formatDuration(this.clock.monotonic() - began)
    this.out.line(
      `Deployed ${this.out.style('bold', f.name)} version ${f.version}: ${kilobytes(f.size_bytes)}, ` +
        `${cores(f.cpu_millis)}, ${f.mem_mb} MB, ${placementText(f)} (${took})`,
    )
    this.out.note(`  → ccp functions invoke ${f.name}`)
  },
})

/** 000-53: the file's name without `.wasm`. Errors: INVALID naming the rule and `--name`. */
export function nameOf(file: string): string {
  const name = basename(file).replace(/\.wasm$/i, '')
  if (NAME_PATTERN.test(name) && name.length <= NAME_LENGTH_MAX) return name
  throw new AppError('INVALID', `'${name}', the file's name, is no function name: ${NAME_RULE}`, {
    details: { reason: 'INVALID_NAME', next: 'Give one with --name' },
  })
}

async function readComponent(file: string): Promise<Buffer> {
  try {
    const { size } = await stat(file)
    if (size > COMPONENT_INLINE_MAX)
      throw new AppError(
        'TOO_LARGE',
        `${file} has ${formatBytes(size)}; a component has at most ${formatBytes(COMPONENT_INLINE_MAX)}`,
        { details: { next: 'Build it for size (-Os, wasm-opt) or strip its debug sections' } },
      )
    return await readFile(file)
  } catch (error) {
    if (error instanceof AppError) throw error
    throw unreadable(file, error, 'Name the .wasm file that your compiler wrote')
  }
}

import { open, readFile, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { kilobytes, placementText } from '#cli/commands/functions/present.ts'
import { unreadable } from '#cli/failure.ts'
import { argument, common, docs, flag, number, text, type CommonFlags } from '#cli/flags.ts'
import { resolveOrg } from '#cli/org.ts'
import type { Progress } from '#cli/prompt.ts'
import { cores } from '#cli/output.ts'
import {
  COMPONENT_INLINE_MAX,
  CPU_MILLIS,
  MEM_MB,
  TIMEOUT_MS,
  UPLOAD_BYTES_MAX,
} from '#core/function/limits.ts'
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
  readonly fuelMax?: number
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
    more: 'The bytes are checked here, while you are still looking at the file, and again by the engine.\nA file over 8 MiB is sent ahead and deployed by its hash.\nDeploying a name again makes its next version; what runs goes on with the old bytes.',
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
      fuelMax: number('Fuel that an invocation may burn (default: as much as its time allows)'),
      region: text('Only on nodes of this region', 'region'),
      allowCommunity: flag('May run on community nodes, which are somebody else’s hardware'),
      idempotent: flag('May be run again elsewhere when a node is lost in the middle'),
      public: flag('May be called by anyone at its address'),
    },
    aliases: { n: 'name' },
  },
  async func({ json, orgId, name, ...fields }, file) {
    const component = await readComponent(file)
    const called = name ?? nameOf(file)
    const org = await resolveOrg(this, orgId, {
      procedure: 'compute.functions.deploy',
      fields: { name: called, ...inline(component), ...fields },
    })
    const progress = await this.ask.progress(
      `Uploading ${formatBytes(component.sizeBytes)} and preparing ${called}`,
    )
    const began = this.clock.monotonic()
    const made = await deployed(
      this,
      { component, org, progress },
      { name: called, ...fields },
    ).finally(() => progress.done())
    if (json) return this.out.json(made)
    const f = made.function
    const took = formatDuration(this.clock.monotonic() - began)
    this.out.line(
      `Deployed ${this.out.style('bold', f.name)} version ${f.version}: ${kilobytes(f.size_bytes)}, ` +
        `${cores(f.cpu_millis)}, ${f.mem_mb} MB, ${placementText(f)} (${took})`,
    )
    this.out.note(`  → ccp functions invoke ${f.name}`)
    if (f.public)
      this.out.note(
        `  → anybody: curl --data-binary @FILE ${(await this.target()).url}/fn/${org}/${f.name}`,
      )
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

/** What stands in the file; `bytes` when it is small enough to travel inline. */
type Component = { file: string; sizeBytes: number; bytes?: Buffer }

type Fields = { name: string } & Omit<Flags, keyof CommonFlags | 'name'>

const inline = ({ bytes }: Component): { component: string } | { componentSha256: string } =>
  bytes ? { component: bytes.toString('base64') } : { componentSha256: NOT_KNOWN_YET }
/** Stands for a hash when the other fields are checked. */
const NOT_KNOWN_YET = '0'.repeat(64)

async function deployed(
  cli: Cli,
  { component, org, progress }: { component: Component; org: string; progress: Progress },
  fields: Fields,
) {
  const { deploy: call } = (await cli.api()).compute.functions
  if (component.bytes) return call({ orgId: org, ...inline(component), ...fields })
  const { sendComponent } = await import('#cli/send-component.ts')
  const { file, sizeBytes } = component
  const componentSha256 = await sendComponent(cli, {
    file,
    sizeBytes,
    orgId: org,
    onProgress: (sent) =>
      progress.say(
        sent < sizeBytes
          ? `Uploading ${formatBytes(sent)} of ${formatBytes(sizeBytes)}`
          : `Preparing ${fields.name}`,
      ),
  })
  return call({ orgId: org, componentSha256, ...fields })
}

async function readComponent(file: string): Promise<Component> {
  try {
    const { size: sizeBytes } = await stat(file)
    if (sizeBytes > UPLOAD_BYTES_MAX)
      throw new AppError(
        'TOO_LARGE',
        `${file} has ${formatBytes(sizeBytes)}; a component has at most ${formatBytes(UPLOAD_BYTES_MAX)}`,
        { details: { next: 'Build it for size (-Os, wasm-opt) or strip its debug sections' } },
      )
    if (sizeBytes > COMPONENT_INLINE_MAX) {
      checkMagic(await beginningOf(file))
      return { file, sizeBytes }
    }
    const bytes = await readFile(file)
    checkMagic(bytes)
    return { file, sizeBytes: bytes.length, bytes }
  } catch (error) {
    if (error instanceof AppError) throw error
    throw unreadable(file, error, 'Name the .wasm file that your compiler wrote')
  }
}

/** Enough to tell what it is. */
const BEGINNING_BYTES = 8

async function beginningOf(file: string): Promise<Buffer> {
  const handle = await open(file)
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(BEGINNING_BYTES), { position: 0 })
    return buffer.subarray(0, bytesRead)
  } finally {
    await handle.close()
  }
}

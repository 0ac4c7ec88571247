// One real function through the whole path: deployed, invoked on the node, its answer checked against our own count.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Cli } from '#cli/cli.ts'
import { kilobytes } from '#cli/commands/functions/present.ts'
import type { Platform } from '#cli/dev/platform.ts'
import type { Steps } from '#cli/dev/steps.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError } from '#lib/error.ts'

const EXAMPLE = 'examples/word-count'
const NAME = 'word-count'

/** Errors: INTERNAL `WRONG_RESULT`; whatever deploy and invoke refuse. */
export async function runDemo(cli: Cli, steps: Steps, platform: Platform): Promise<void> {
  const { api, orgId } = platform
  const component = await readFile(join(cli.root, EXAMPLE, 'word-count.wasm'))
  const { functions } = await api.compute.functions.list({ orgId })
  const there = functions.find(({ name }) => name === NAME)
  // What somebody deployed, set or rolled back stays as it is.
  if (there && there.sha256 !== sha256Hex(component)) return
  await steps.run(`deployed ${NAME}`, async () => {
    if (there) return { note: `version ${there.version}, as it was` }
    const { function: made } = await api.compute.functions.deploy({
      orgId,
      name: NAME,
      component: component.toString('base64'),
      idempotent: true,
    })
    return { note: `${kilobytes(component.length)} of WebAssembly, version ${made.version}` }
  })
  const input = await readFile(join(cli.root, EXAMPLE, 'README.md'))
  for (const step of ['invoked it the first time', 'invoked it again, warm'])
    await steps.run(step, async () => {
      const result = await api.compute.functions.invoke({
        orgId,
        name: NAME,
        stdinBase64: input.toString('base64'),
      })
      const said = result.stdout.trim().split(/\s+/).join(' ')
      if (!result.ok || said !== count(input))
        throw new AppError('INTERNAL', `${NAME} answered '${said}', not '${count(input)}'`, {
          details: {
            reason: result.reason ?? 'WRONG_RESULT',
            also: [result.error ?? result.stderr],
          },
        })
      const [lines, words, bytes] = said.split(' ')
      return {
        note: `${lines} lines, ${words} words, ${bytes} bytes · exit ${result.exitCode} · ${result.durationMs.toFixed(1)} ms on ${result.node_id}`,
      }
    })
}

/** What `LC_ALL=C wc` says: lines, words, bytes. A word has at least one printable byte. */
export function count(input: Uint8Array): string {
  const text = Buffer.from(input).toString('latin1')
  const words = text.split(/[ \t\n\v\f\r]+/).filter((run) => /[\x21-\x7e]/.test(run))
  return `${text.split('\n').length - 1} ${words.length} ${input.length}`
}

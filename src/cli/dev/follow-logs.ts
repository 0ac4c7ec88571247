// `-v`: what the programs write to their log files, as they write it, each line with its program's name.
import { open } from 'node:fs/promises'
import type { Cli } from '#cli/cli.ts'
import type { Platform } from '#cli/dev/platform.ts'

const EVERY_MS = 200
const CHUNK_BYTES = 64 * 1024

export function followLogs(cli: Cli, platform: Platform): { stop(): void } {
  const seen = new Map<string, number>()
  let timer = cli.clock.after(0, pass)
  function pass(): void {
    void Promise.all(platform.programs.map((program) => show(program))).finally(() => {
      timer = cli.clock.after(EVERY_MS, pass)
    })
  }
  async function show({ name, logFile, logFrom }: Platform['programs'][number]): Promise<void> {
    const { from, text } = await readFrom(logFile, seen.get(logFile) ?? logFrom)
    // Up to the last line end: the rest is not written yet.
    const whole = text.subarray(0, text.lastIndexOf(10) + 1)
    seen.set(logFile, from + whole.length)
    for (const line of whole.toString('utf8').split('\n').slice(0, -1))
      cli.out.note(`${cli.out.style('dim', `[${name}]`)} ${line}`)
  }
  return { stop: () => timer() }
}

/** From the start again when the file was emptied meanwhile. */
async function readFrom(path: string, wanted: number): Promise<{ from: number; text: Buffer }> {
  const file = await open(path).catch(() => undefined)
  if (file === undefined) return { from: wanted, text: Buffer.alloc(0) }
  try {
    const from = (await file.stat()).size < wanted ? 0 : wanted
    const { buffer, bytesRead } = await file.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES, from)
    return { from, text: buffer.subarray(0, bytesRead) }
  } finally {
    await file.close()
  }
}

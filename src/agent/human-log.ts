// Log lines for a person at a terminal: '12:03:04 connected to … over QUIC', instead of JSON.
import { z } from 'zod'

const Line = z.looseObject({
  level: z.string(),
  time: z.string(),
  msg: z.string().optional(),
  err: z.object({ message: z.string() }).optional(),
})

/** What createLogger writes to: each JSON line becomes one readable line. */
export function humanLines(write: (text: string) => void): { write(line: string): void } {
  return {
    write(line) {
      write(`${readable(line)}\n`)
    },
  }
}

function readable(line: string): string {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch {
    return line.trimEnd()
  }
  const parsed = Line.safeParse(value)
  if (!parsed.success) return line.trimEnd()
  const { level, time, msg, err } = parsed.data
  const loud = level === 'info' || level === 'debug' ? '' : `${level}: `
  const cause = err === undefined ? '' : ` (${err.message})`
  return `${time.slice(11, 19)} ${loud}${msg ?? ''}${cause}`
}

// What people and scripts read. Results go to stdout, everything else to stderr; JSON is never styled.
import { formatDuration } from '#lib/duration.ts'
import type { Instant } from '#lib/clock.ts'

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan'
const CODES: Record<Style, number> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 }

export type Sink = { write(chunk: string | Uint8Array): unknown }

export type Output = {
  /** One line of the result. */
  line(text?: string): void
  /** One line beside the result, on stderr. */
  note(text: string): void
  /** The result for machines: one JSON value, with a line end. */
  json(value: unknown): void
  /** Bytes as they are. */
  raw(stream: 'stdout' | 'stderr', bytes: Uint8Array): void
  /** Columns as wide as their widest cell, the head first. Cells may be styled. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): void
  /** 'name   value' lines, the names as wide as the widest. */
  pairs(pairs: readonly (readonly [string, string])[]): void
  style(style: Style, text: string): string
}

/** `colour` false writes no escape code at all. */
export function createOutput(streams: { stdout: Sink; stderr: Sink }, colour: boolean): Output {
  const line = (text = ''): void => void streams.stdout.write(`${text}\n`)
  const style = (name: Style, text: string): string =>
    colour && text !== '' ? `\u001b[${CODES[name]}m${text}\u001b[0m` : text
  return {
    line,
    note: (text) => void streams.stderr.write(`${text}\n`),
    json: (value) => line(JSON.stringify(value, undefined, 2)),
    raw: (stream, bytes) => void streams[stream].write(bytes),
    table(head, rows) {
      for (const row of columns([head.map((title) => style('dim', title)), ...rows])) line(row)
    },
    pairs(pairs) {
      for (const row of columns(pairs.map(([name, value]) => [style('dim', name), value])))
        line(`  ${row}`)
    },
    style,
  }
}

// oxlint-disable-next-line no-control-regex -- escape codes have no width
const ESCAPES = /\u001b\[[0-9;]*m/g
const widthOf = (cell: string): number => cell.replaceAll(ESCAPES, '').length

/** Rows whose columns start at the same place, two spaces apart, without spaces at the end. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = []
  for (const row of rows)
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, widthOf(cell))
  return rows.map((row) =>
    row
      .map((cell, i) => cell + ' '.repeat((widths[i] ?? 0) - widthOf(cell)))
      .join('  ')
      .trimEnd(),
  )
}

/** '3 min ago', 'just now', 'in 2 d': for people. JSON has the exact instant. */
export function ago(instant: string | null, now: Instant): string {
  if (instant === null) return 'never'
  const ms = now - Date.parse(instant)
  if (Math.abs(ms) < 1000) return 'just now'
  // What was made to last seven days is not 'in 6 d 23 h' a moment later.
  const seconds = ms < 0 ? Math.ceil(-ms / 1000) : Math.floor(ms / 1000)
  const rounded = formatDuration(seconds * 1000).replace('.0 s', ' s')
  return ms < 0 ? `in ${rounded}` : `${rounded} ago`
}

/** '1.5 cores'. */
export const cores = (millis: number): string =>
  `${Number((millis / 1000).toFixed(2))} ${millis === 1000 ? 'core' : 'cores'}`

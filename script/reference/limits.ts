// limits.md: every constant of src/core/*/limits.ts with its value and the reason that stands above it.
import { pathToFileURL } from 'node:url'
import { join } from 'node:path'
import { code, page, sources, table } from './markdown.ts'

const root = join(import.meta.dirname, '../..')

export async function limitsPage(): Promise<string> {
  const parts: string[] = []
  for (const { path, text } of sources(/^src\/core\/.*\/?limits\.ts$/)) {
    const values: Record<string, unknown> = await import(pathToFileURL(join(root, path)).href)
    parts.push(`## ${path.split('/')[2] ?? path}`, `From ${code(path)}.`, limitTable(text, values))
  }
  return page(
    'Limits',
    'Sizes are bytes unless the name says otherwise, times milliseconds.',
    ...parts,
  )
}

function limitTable(text: string, values: Record<string, unknown>): string {
  const rows: string[][] = []
  let reason = ''
  for (const found of text.matchAll(/\/\*\*([^]*?)\*\/|export const ([A-Z0-9_]+)\b/g)) {
    const [, comment, name] = found
    if (comment !== undefined) reason = comment.replaceAll(/\s*\n\s*\*\s?/g, ' ').trim()
    else if (name !== undefined) rows.push([code(name), valueText(values[name]), reason])
  }
  return table(['Limit', 'Value', 'Why'], rows)
}

function valueText(value: unknown): string {
  if (typeof value === 'number') return value.toLocaleString('en-US')
  if (typeof value === 'object' && value !== null)
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${valueText(inner)}`)
      .join(', ')
  return String(value)
}

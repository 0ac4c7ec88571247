// script/reference.ts [--check]: writes docs/reference from the code; with --check it only says whether that is current.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { referencePages } from './reference/pages.ts'

const folder = join(import.meta.dirname, '../docs/reference')
const check = process.argv.includes('--check')

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

let stale = 0
mkdirSync(folder, { recursive: true })
for (const [name, text] of Object.entries(await referencePages())) {
  const path = join(folder, name)
  if (read(path) === text) continue
  stale++
  if (!check) writeFileSync(path, text)
  process.stdout.write(`${check ? 'stale' : 'wrote'} docs/reference/${name}\n`)
}
if (check && stale > 0) {
  process.stdout.write('Write them with: node_modules/.bin/node script/reference.ts\n')
  process.exitCode = 1
}

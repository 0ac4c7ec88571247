// Writes src/store/schema.gen.ts from a throw-away database with all migrations; with `--check` it only compares.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { urlOf } from '#store/connect.ts'
import { type Scope, testTarget } from '#store/test-database.ts'

const ROOT = join(import.meta.dirname, '..')
const FILE = join(ROOT, 'src/store/schema.gen.ts')

const ends: (() => Promise<void>)[] = []
const scope: Scope = { after: (fn) => void ends.push(fn) }
const draft = mkdtempSync(join(tmpdir(), 'clutch-codegen-'))
try {
  const made = generate(urlOf(await testTarget(scope)), join(draft, 'schema.gen.ts'))
  if (process.argv.includes('--check')) check(made)
  else writeFileSync(FILE, made)
} finally {
  rmSync(draft, { recursive: true })
  for (let end = ends.shift(); end; end = ends.shift()) await end()
}

function generate(url: string, out: string): string {
  const flags = ['--dialect', 'postgres', '--camel-case', '--out-file', out, '--url', url]
  // What connect.ts makes of them: int8 is a number, a date is a text.
  flags.push('--type-mapping', '{"int8":"number"}', '--date-parser', 'string')
  flags.push('--exclude-pattern', 'kysely_*')
  const cli = join(ROOT, 'node_modules/kysely-codegen/dist/cli/bin.js')
  execFileSync(process.execPath, [cli, ...flags], { stdio: ['ignore', 'ignore', 'inherit'] })
  return readFileSync(out, 'utf8')
}

function check(made: string): void {
  if (made === readFileSync(FILE, 'utf8')) return
  process.stderr.write(
    'src/store/schema.gen.ts is not what the migrations make: run npm run codegen\n',
  )
  process.exitCode = 1
}

// Exits 0 when node_modules holds exactly what package-lock.json says and its Node runs; else 1.
// Plain JavaScript for whatever Node the machine has: it runs before ours is there.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(fileURLToPath(import.meta.url), '../..')
const packages = (file) => JSON.parse(readFileSync(join(root, file), 'utf8')).packages

function matches() {
  const wanted = packages('package-lock.json')
  // npm writes down here what it installed.
  const there = packages('node_modules/.package-lock.json')
  const same = (name) =>
    there[name]?.version === wanted[name].version &&
    there[name]?.integrity === wanted[name].integrity
  // An optional package of another platform is not installed.
  const fine = (name) => name === '' || same(name) || (wanted[name].optional && !there[name])
  return (
    Object.keys(wanted).every(fine) &&
    Object.keys(there).every((name) => wanted[name] !== undefined)
  )
}

function nodeRuns() {
  const run = spawnSync(join(root, 'node_modules/.bin/node'), ['--version'], { encoding: 'utf8' })
  return run.status === 0 && Number(run.stdout.slice(1).split('.')[0]) >= 24
}

let ok = false
try {
  ok = matches() && nodeRuns()
} catch {
  // Nothing installed yet, or half of it.
}
process.exit(ok ? 0 : 1)

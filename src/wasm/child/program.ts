// The program that a child receives over its pipe. It needs to read no file: its modules come as text, types
// stripped, and a hook in the bootstrap hands them to Node's loader. So a child runs with no right to read anything.
import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { assert } from '#lib/assert.ts'

export type ChildProgram = { entry: string; modules: Record<string, string> }

/**
 * What `node -e` runs: reads one frame, serves its modules under `clutch:` URLs, calls the entry's `main`.
 * Plain JavaScript, and short: it is visible in `ps`.
 */
export const BOOTSTRAP = `
import { registerHooks } from 'node:module'
import { readSync } from 'node:fs'
const collect = globalThis.gc
const fill = (b) => { for (let n = 0, k; n < b.length; n += k) if (!(k = readSync(0, b, n, b.length - n, null))) process.exit(0); return b }
const program = JSON.parse(fill(Buffer.alloc(fill(Buffer.alloc(5)).readUInt32LE(0))))
registerHooks({
  resolve: (specifier, context, next) => Object.hasOwn(program.modules, specifier)
    ? { url: 'clutch:' + specifier.slice(1), format: 'module', shortCircuit: true } : next(specifier, context),
  load: (url, context, next) => url.startsWith('clutch:')
    ? { format: 'module', source: program.modules['#' + url.slice(7)], shortCircuit: true } : next(url, context),
})
await (await import(program.entry)).main(collect)
`

const IMPORT = /(?:from|import) '(#[^']+)'/g

/** Stripping works without a flag; Node still prints that its function is new, once, on our stderr. */
function stripQuietly(source: string): string {
  const emitWarning: unknown = Reflect.get(process, 'emitWarning')
  process.emitWarning = () => {}
  try {
    return stripTypeScriptTypes(source)
  } finally {
    Reflect.set(process, 'emitWarning', emitWarning)
  }
}

function collect(specifier: string, modules: Record<string, string>): void {
  if (Object.hasOwn(modules, specifier)) return
  const source = readFileSync(new URL(import.meta.resolve(specifier)), 'utf8')
  const text = specifier.endsWith('.ts') ? stripQuietly(source) : source
  modules[specifier] = text
  for (const [, found] of text.matchAll(IMPORT)) if (found !== undefined) collect(found, modules)
}

const known = new Map<string, Buffer>()

/** The program whose entry is `specifier` ('#wasm/runner-child.ts'), as the payload of its frame. */
export function childProgram(specifier: string): Buffer {
  const held = known.get(specifier)
  if (held !== undefined) return held
  assert(specifier.startsWith('#'), `a child's entry is one of our modules, not ${specifier}`)
  const program: ChildProgram = { entry: specifier, modules: {} }
  collect(specifier, program.modules)
  const bytes = Buffer.from(JSON.stringify(program))
  known.set(specifier, bytes)
  return bytes
}

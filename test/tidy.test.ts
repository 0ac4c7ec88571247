// The border of the house (design §3, §4): which room may import which, and which outside modules each may touch.
// So "no SQL outside the store" and "fleet paths never call the identity system" are facts of the import graph.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { test } from 'node:test'

/** Each room: the rooms it may import. A room may always import itself. */
const rooms: Record<string, string> = {
  lib: '',
  core: 'lib',
  api: 'core lib',
  protocol: 'core lib',
  session: 'protocol core lib',
  wasm: 'core lib',
  store: 'core lib',
  engine: 'api protocol session wasm store core lib',
  agent: 'session protocol wasm core lib',
  cli: 'api wasm core lib',
  sim: 'engine agent session wasm api protocol store core lib',
  bin: 'sim engine agent session wasm cli api protocol store core lib',
}

/** Each room: the modules from outside the house that it may touch. */
const outside: Record<string, string> = {
  lib: 'node:crypto node:fs node:fs/promises node:path pino',
  core: '',
  api: '@orpc/contract zod',
  protocol:
    'node:zlib node:crypto node:tls node:net node:dns/promises node:module node:stream node:events cborg zod @peculiar/x509 reflect-metadata',
  session: 'node:crypto node:stream node:events zod',
  wasm: 'node:module node:buffer node:vm node:child_process node:fs node:fs/promises node:path node:stream node:os node:url node:crypto node:events node:worker_threads cborg zod @bytecodealliance/jco-transpile @bytecodealliance/jco-transpile/wasm-tools',
  store:
    'node:crypto node:fs node:fs/promises node:path node:os node:url node:util node:sqlite node:child_process node:events node:stream node:stream/promises node:module node:net kysely kysely/migration pg zod @peculiar/x509 reflect-metadata',
  engine:
    'node:url node:http node:crypto node:stream node:net node:fs node:fs/promises node:path node:events node:module zod @orpc/contract @orpc/server @orpc/server/plugins @orpc/server/standard @orpc/openapi @orpc/openapi/standard @orpc/zod/zod4 better-auth better-auth/node better-auth/plugins better-auth/plugins/access better-auth/plugins/organization/access better-auth/api better-auth/adapters/kysely-adapter @better-auth/api-key @better-auth/core prom-client',
  agent:
    'node:util node:fs node:fs/promises node:path node:os node:util node:crypto node:child_process node:sqlite node:stream node:events zod',
  cli: 'node:fs node:fs/promises node:path node:os node:util node:stream node:stream/promises node:child_process node:crypto node:http node:https node:net node:dgram zod @stricli/core @clack/prompts @orpc/client @orpc/client/fetch @orpc/contract',
  sim: 'node:http node:crypto node:child_process node:fs node:fs/promises node:path node:stream node:module node:os node:events node:tls node:net zod',
  bin: 'node:process node:fs node:fs/promises node:path node:os node:url node:crypto node:child_process node:util node:stream node:readline zod',
}

/** Exceptions from the general: one file alone may touch these. */
const onlyIn: Record<string, RegExp> = {
  '@chainsafe/libp2p-quic-linux-x64-gnu': /^src\/protocol\/quic-pipe\.ts$|^src\/sim\/bench\//,
  'better-auth': /^src\/engine\/auth/,
}

const inTests =
  /^(node:|fast-check$|playwright-core$|@orpc\/client|@bytecodealliance\/jco-transpile|pg$|kysely|zod$|cborg$|#)/
const BANNED_NAMES = /^(index|utils?|helpers?|common|misc|shared|types|manager|service)$/
const LINES_MAX = 400
const FOLDER_MAX = 25

const isTest = (file: string): boolean => file.endsWith('.test.ts')
const tracked = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
  encoding: 'utf8',
  cwd: join(import.meta.dirname, '..'),
})
  .split('\n')
  .filter((file) => file !== '' && existsSync(join(import.meta.dirname, '..', file)))
const sources = tracked.filter((file) => /^src\/.*\.ts$/.test(file) && !file.includes('/fixtures/'))
const read = (file: string): string => readFileSync(join(import.meta.dirname, '..', file), 'utf8')

/** Every module a source names: static, side-effect, re-export, dynamic, require. Comments are taken out first. */
function importsOf(text: string): string[] {
  const code = text.replaceAll(/^\s*\/\/.*$/gm, '').replaceAll(/\/\*[^]*?\*\//g, '')
  const patterns = [
    /^\s*(?:import|export)\b[^'"`;]*?\bfrom\s+['"]([^'"]+)['"]/gm,
    /^\s*import\s+['"]([^'"]+)['"]/gm,
    /\bimport\(\s*['"]([^'"]+)['"]/g,
    /\brequire(?:\.resolve)?\(\s*['"]([^'"]+)['"]/g,
  ]
  return patterns.flatMap((pattern) => [...code.matchAll(pattern)].map((m) => m[1] ?? ''))
}

/** What is wrong with one source's imports; empty when nothing is. */
function faultsOf(file: string, text: string): string[] {
  const room = file.split('/')[1] ?? ''
  const allowed = rooms[room]
  if (allowed === undefined) return [`${room} is not a room`]
  return importsOf(text).flatMap((target) => {
    if (target.startsWith('.')) return [`relative import '${target}': write '#${room}/…'`]
    if (target.startsWith('#')) {
      const home = target.slice(1).split('/')[0] ?? ''
      const fine = home === room || allowed.split(' ').includes(home)
      return fine || isTest(file) ? [] : [`${room} may not import ${home} ('${target}')`]
    }
    const only = Object.entries(onlyIn).find(
      ([name]) => target === name || target.startsWith(`${name}/`),
    )
    if (only && !only[1].test(file) && !isTest(file)) return [`'${target}' belongs to ${only[1]}`]
    const fine = only !== undefined || (outside[room] ?? '').split(' ').includes(target)
    return fine || (isTest(file) && inTests.test(target))
      ? []
      : [`${room} may not touch '${target}'`]
  })
}

test('every room stands in both tables', () => {
  assert.deepEqual(Object.keys(rooms), Object.keys(outside))
})

test('imports stay inside the border', () => {
  const faults = sources.flatMap((file) =>
    faultsOf(file, read(file)).map((fault) => `${file}: ${fault}`),
  )
  assert.deepEqual(faults, [])
})

test('the border check sees each kind of import', () => {
  const planted: [string, string][] = [
    ['src/core/x.ts', "import { a } from '#store/nodes.ts'"],
    ['src/core/x.ts', "export { a } from '#engine/x.ts'"],
    ['src/core/x.ts', "import 'node:fs'"],
    ['src/cli/x.ts', "const x = await import('#engine/x.ts')"],
    ['src/agent/x.ts', "import pg from 'pg'"],
    ['src/session/x.ts', "import { x } from '../store/nodes.ts'"],
    ['src/engine/gateway/x.ts', "import { betterAuth } from 'better-auth'"],
    ['src/nowhere/x.ts', ''],
  ]
  for (const [file, text] of planted)
    assert.equal(faultsOf(file, text).length, 1, `${file}: ${text}`)
})

test('SQL lives in the store', () => {
  const sql = /\bsql(<[^`]*>)?`|\.(selectFrom|insertInto|updateTable|deleteFrom)\(/
  const outsiders = sources.filter(
    (f) =>
      !f.startsWith('src/store/') && !isTest(f) && !f.startsWith('src/sim/') && sql.test(read(f)),
  )
  assert.deepEqual(outsiders, [])
})

test('000-16 nothing that places reads the contributor', () => {
  const placing = sources.filter(
    (f) => /\/placement|\/slots|functions\/(invoker|slot)/.test(f) && !isTest(f),
  )
  assert.ok(placing.length > 2)
  for (const file of placing)
    assert.doesNotMatch(read(file).replaceAll(/\/\/.*$/gm, ''), /contributor/, file)
})

test('ND-27 fleet tables refer to no table of the identity system, and make no time or id themselves', () => {
  const fleet = tracked.filter((f) => /^migrations\/\d{4}-.*\.sql$/.test(f) && !f.includes('auth'))
  assert.ok(fleet.length > 0)
  for (const file of fleet) {
    const text = read(file).replaceAll(/--.*$/gm, '')
    assert.doesNotMatch(
      text,
      /references\s+(users|organizations|members|sessions|apikey|accounts)/i,
      file,
    )
    assert.doesNotMatch(text, /\bnow\(\)|uuidv7|gen_random_uuid|current_timestamp/i, file)
  }
})

test('files are kebab-case, small, and named for what they hold', () => {
  const faults = sources.flatMap((file) => {
    const name = basename(file).replace(/(\.(pg|sim|e2e|d))?(\.test)?\.ts$/, '')
    const out: string[] = []
    if (!/^[a-z0-9]+(-[a-z0-9]+)*(\.gen)?$/.test(name)) out.push(`${file}: not kebab-case`)
    if (BANNED_NAMES.test(name)) out.push(`${file}: '${name}' says nothing`)
    const lines = read(file).split('\n').length
    if (lines > LINES_MAX && !isTest(file) && !file.endsWith('.gen.ts'))
      out.push(`${file}: ${lines} lines, ${LINES_MAX} are allowed`)
    return out
  })
  assert.deepEqual(faults, [])
})

test('folders hold at most 25 files', () => {
  const count = new Map<string, number>()
  for (const file of sources.filter((f) => !isTest(f) && !f.endsWith('.gen.ts')))
    count.set(dirname(file), (count.get(dirname(file)) ?? 0) + 1)
  assert.deepEqual(
    [...count].filter(([, files]) => files > FOLDER_MAX),
    [],
  )
})

test('OP-2 no test is skipped, focused or postponed, and no source says TODO', () => {
  const marks =
    /\b(test|it|describe|suite)\.(skip|only|todo)\b|\{ *(skip|todo|only): *true|\b(TODO|FIXME|XXX)\b/
  const own = 'test/tidy.test.ts'
  const marked = tracked.filter((f) => f.endsWith('.ts') && f !== own && marks.test(read(f)))
  assert.deepEqual(marked, [])
})

test('OP-7 every dependency has its line in docs/decisions', () => {
  const kinds = ['dependencies', 'devDependencies', 'optionalDependencies'] as const
  const listed = JSON.parse(read('package.json')) as Record<(typeof kinds)[number], object>
  const decided = tracked.filter((file) => file.startsWith('docs/decisions/')).map(read)
  const named = (name: string): boolean => decided.some((text) => text.includes(`\`${name}\``))
  const undecided = kinds
    .flatMap((kind) => Object.keys(listed[kind]))
    // `@orpc/*` stands for its packages.
    .filter((name) => !named(name) && !named(`${name.split('/')[0]}/*`))
  assert.deepEqual(undecided, [])
})

test('code of the product takes time, chance and environment as arguments', () => {
  const air = /\bDate\.now\(|\bMath\.random\(|\bprocess\.env\b|\bnew Date\(\)/
  const takers = sources.filter(
    (f) =>
      !/^src\/(lib|bin)\//.test(f) && !isTest(f) && air.test(read(f).replaceAll(/\/\/.*$/gm, '')),
  )
  assert.deepEqual(takers, [])
})
